"""Scenario files for tests, written as their authors write them."""

from pathlib import Path

HEAD = """\
name: small
goal: Write out.txt.
requirements:
  - id: written
    text: out.txt exists
    check: {kind: file, path: out.txt}
"""

SCRIPT = """\
replies:
  - node: plan
    reply: {why: it is needed, steps: [{title: Write it, instruction: Write out.txt., requirements: [written]}]}
  - node: is_step_done
    reply: {reason: not there, citation: null, result: false}
  - node: propose_action
    reply: {thought: write, actions: [{tool: run, arguments: {command: "%s"}}], more: false}
  - node: validate_plan_step
    reply: {reason: not there, citation: null, result: false}
  - node: summarize_actions
    reply: Something was run.
"""


def write_scenario(folder: Path, text: str, script: str | None = None) -> Path:
    """Write a scenario file, and a rehearsal beside it, and return the scenario's path."""
    path = folder / "task.yaml"
    path.write_text(text, "utf-8")
    if script is not None:
        (folder / "script.yaml").write_text(script, "utf-8")
    return path


def rehearsed_scenario(folder: Path, command: str, more: str = "") -> Path:
    """Write a scenario whose rehearsed model runs ``command`` in its only step."""
    text = f"{HEAD}models: {{default: rehearsed}}\nrehearsal: script.yaml\n{more}"
    return write_scenario(folder, text, SCRIPT % command)
