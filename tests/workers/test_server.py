"""The embedded server's program, ports and command line."""

import socket
from itertools import pairwise
from pathlib import Path

import pytest

from schemas.contract import SearchAttribute
from tests.support.server import settings_of
from workers.server import HOST, Ports, ServerMissing, choose_ports, find_server, server_command, version


def test_the_installed_program_is_found_and_runs(tmp_path: Path) -> None:
    assert version(find_server(settings_of(tmp_path))).startswith("temporal version")


def test_a_configured_program_goes_before_the_installed_one(tmp_path: Path) -> None:
    program = tmp_path / "temporal"
    program.write_text("#!/bin/sh\necho own\n")
    program.chmod(0o755)
    found = find_server(settings_of(tmp_path, temporal_cli=program))
    assert found == program
    assert version(found) == "own"


def test_a_missing_program_is_told_with_what_mends_it(tmp_path: Path) -> None:
    with pytest.raises(ServerMissing, match="is no program; run `make setup`, or set SUREFOOT_TEMPORAL_CLI"):
        find_server(settings_of(tmp_path, temporal_cli=tmp_path / "gone"))


def test_the_command_line_keeps_a_file_unthrottles_the_server_and_registers_every_search_attribute(
    tmp_path: Path,
) -> None:
    words = server_command(Path("temporal"), settings_of(tmp_path), Ports(grpc=1, ui=2, http=3, metrics=4))
    pairs = set(pairwise(words))
    assert ("--db-filename", str(tmp_path / "temporal.db")) in pairs
    assert {("--sqlite-pragma", "journal_mode=WAL"), ("--sqlite-pragma", "synchronous=NORMAL")} <= pairs
    assert ("--dynamic-config-value", 'history.timerProcessorMaxTimeShift="50ms"') in pairs
    assert sum(word == "--dynamic-config-value" for word in words) == 5
    attributes = {word.split("=")[0]: word.split("=")[1] for word in words if word.startswith("Surefoot")}
    assert set(attributes) == {attribute.value for attribute in SearchAttribute}
    assert attributes["SurefootWaiting"] == "Bool"
    assert attributes["SurefootSpendUsd"] == "Double"
    assert attributes["SurefootStatus"] == "Keyword"


def test_ports_stay_the_same_while_they_are_free(tmp_path: Path) -> None:
    first = choose_ports(tmp_path)
    assert len({first.grpc, first.ui, first.http, first.metrics}) == 4
    assert choose_ports(tmp_path) == first


def test_only_a_port_that_somebody_else_took_is_changed(tmp_path: Path) -> None:
    first = choose_ports(tmp_path)
    with socket.socket() as other:
        other.bind((HOST, first.ui))
        other.listen()
        second = choose_ports(tmp_path)
    assert second.ui != first.ui
    assert (second.grpc, second.http, second.metrics) == (first.grpc, first.http, first.metrics)
    assert choose_ports(tmp_path) == second
