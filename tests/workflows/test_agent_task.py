"""The loop, on a real server with scripted activities."""

from schemas.models import Node
from schemas.outcome import OutcomeKind, StopReason
from schemas.task import Bounds
from tests.support.running import Running, on_server
from tests.support.scripted import World, plan_of, requirement, spec
from tests.support.server import DevServer


def test_a_task_finishes_as_soon_as_its_requirements_hold(server: DevServer) -> None:
    world = World(plan=plan_of("first", "second"))

    async def test(running: Running) -> None:
        result = await running.run()
        assert result.outcome.kind is OutcomeKind.FINISHED
        assert world.nodes() == ["plan", "is_step_done", "propose_action"]  # nobody was asked whether it is done
        assert world.closed == 1
        assert len(world.recorded) == 1

    on_server(server.settings, world, test)


def test_a_claim_finishes_nothing_and_the_outermost_bound_is_the_outcome(server: DevServer) -> None:
    world = World(met=lambda world: False)

    async def test(running: Running) -> None:
        result = await running.run(spec(running.queue, bounds=Bounds(max_plan_versions=3)))
        assert result.outcome.kind is OutcomeKind.STOPPED_INCOMPLETE
        assert result.outcome.reason is StopReason.MAX_PLAN_VERSIONS
        assert world.nodes().count("plan") + world.nodes().count("replan") == 3

    on_server(server.settings, world, test)


def test_a_step_that_is_never_done_moves_out_to_a_new_plan_with_what_was_learned(server: DevServer) -> None:
    world = World(met=lambda world: False, verdict=lambda request: False)

    async def test(running: Running) -> None:
        bounds = Bounds(max_plan_versions=2, max_plan_step_iterations=2, max_plan_step_actions=1)
        result = await running.run(spec(running.queue, bounds=bounds))
        assert result.outcome.reason is StopReason.MAX_PLAN_VERSIONS
        assert len(world.performed) == 4
        replan = next(request for request in world.asked if request.node is Node.REPLAN)
        learned = [text.inline for text in replan.context if text.slot == "learned"]
        assert learned == ["v1.s1 is not done after 2 iterations: scripted False"]
        assert [request.action_id for request in world.performed] == [
            "v1.s1.i1.a1",
            "v1.s1.i2.a1",
            "v2.s1.i1.a1",
            "v2.s1.i2.a1",
        ]

    on_server(server.settings, world, test)


def test_an_optional_requirement_does_not_keep_a_task_running(server: DevServer) -> None:
    world = World()

    async def test(running: Running) -> None:
        task = spec(running.queue, requirements=(requirement(), requirement("nice", mandatory=False)))
        assert (await running.run(task)).outcome.kind is OutcomeKind.FINISHED

    on_server(server.settings, world, test)
