"""A key in a configuration is refused before anything stores it, and the message does not repeat it."""

from __future__ import annotations

from pathlib import Path

import pytest

from pipeline import config
from pipeline.cli.main import main
from pipeline.errors import UserError

KEY = "sk-proj-abcdefghijklmnop1234"
ENDPOINT = ("llm=endpoint", "llm.base_urls=[http://127.0.0.1:1/v1]")


@pytest.mark.parametrize(
    ("word", "named"),
    [
        (f"llm.api_key_env={KEY}", "llm.api_key_env must be the name of a variable"),
        ("llm.api_key_env=gsk_abcdefghijklmnopqrst", "llm.api_key_env must be the name of a variable"),
        ("llm.extra_body={api_key: abcdef}", "llm.extra_body.api_key holds a key"),
        ("llm.extra_body={headers: {Authorization: abcdef}}", "llm.extra_body.headers.Authorization holds a key"),
        ("llm.extra_body={x-api-key: abcdef}", "llm.extra_body.x-api-key holds a key"),
        (f"llm.extra_body={{user: [{KEY}]}}", "llm.extra_body.user holds a key"),
        (f"llm.roles={{srp.judge: {{api_key_env: {KEY}}}}}", "llm.roles.srp.judge.api_key_env must be the name"),
        ("llm.model='Bearer abcdefghijk'", "llm.model holds a key"),
    ],
)
def test_a_key_is_refused_and_not_stored(
    word: str, named: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["evaluate", *ENDPOINT, word]) == 2
    said = capsys.readouterr().err
    assert named in said
    assert "abcdef" not in said
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


@pytest.mark.parametrize(
    "word",
    [
        "llm.api_key_env=MY_KEY_2",
        "llm.extra_body={top_k: 20, stop_token_ids: [1], max_tokens: 5, user: me}",
        "llm.extra_body={skip_special_tokens: false, chat_template_kwargs: {enable_thinking: false}}",
        "llm.model=sk-1",
    ],
)
def test_other_keys_are_accepted(word: str) -> None:
    config.check(config.compose([*ENDPOINT, word]))


def test_an_engine_argument_is_checked_too() -> None:
    with pytest.raises(UserError, match=r"llm\.engine_kwargs\.hf_token holds a key"):
        config.check(config.compose(["llm=serve", "llm.model=m", "llm.engine_kwargs={hf_token: abcdef}"]))
