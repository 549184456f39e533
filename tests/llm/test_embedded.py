"""Checks that a Llama in this process gives the results of `transformers`."""

from __future__ import annotations

import asyncio
import json
import math
import pickle
import shutil
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

from pipeline.config import default
from pipeline.errors import ContextOverflow, ServiceError, UserError
from pipeline.llm.embedded.llama import Llama
from pipeline.llm.embedded.model import EmbeddedModel
from pipeline.llm.embedded.reply import Reply
from pipeline.llm.prompt import Message, Sampling
from pipeline.methods.arg.tokens import CLASSES, OPEN
from tests.cli.conftest import evaluate, kgqa
from tests.cli.support import Kgqa
from tests.llm.reference import BEGUN, CHAT, Reference, call
from tests.support import sampled

__all__ = ["evaluate", "kgqa"]
"""Fixtures that run a command."""

LONG = Sampling(max_tokens=40)


@pytest.fixture(scope="module")
def reference(llama: Path) -> Reference:
    return Reference.of(llama)


@pytest.fixture
def copied(llama: Path, tmp_path: Path) -> Path:
    """Copy the Llama's folder, to change it."""
    return Path(shutil.copytree(llama, tmp_path / "copy"))


def embedded(folder: Path) -> EmbeddedModel:
    return default(EmbeddedModel, model=str(folder), threads=2)


def change(folder: Path, name: str, **settings: object) -> None:
    """Change keys of a JSON file; None removes a key."""
    file = folder / name
    changed = json.loads(file.read_text()) | settings
    file.write_text(json.dumps({key: value for key, value in changed.items() if value is not None}))


def asked(count: int) -> list[tuple[Message, ...]]:
    """Return prompts of very different lengths."""
    return [(Message("user", " ".join(f"word {n}" for n in range(7 * number % 60 + 1))),) for number in range(count)]


class TestAnswers:
    @pytest.mark.parametrize("messages", [CHAT, BEGUN], ids=["answers", "continues"])
    async def test_choices_are_the_exact_softmax_of_their_log_probabilities(
        self, llama: Path, reference: Reference, messages: Sequence[Message]
    ) -> None:
        async with embedded(llama) as model:
            for members in CLASSES.values():
                weighed = await model.choose(call(messages, choices=members))
                assert weighed.probabilities == pytest.approx(reference.probabilities(messages, members), abs=1e-4)
                assert weighed.text == max(members, key=(weighed.probabilities or {}).__getitem__)
                assert (weighed.prompt_tokens, weighed.completion_tokens) == (len(reference.ids(messages)), 1)
            with pytest.raises(UserError, match=r"'no token' is \d tokens"):
                await model.choose(call(messages, choices=("[Unrelevant]", "no token")))

    @pytest.mark.parametrize("messages", [CHAT, BEGUN], ids=["answers", "continues"])
    async def test_the_most_probable_tokens_and_their_log_probabilities(
        self, llama: Path, reference: Reference, messages: Sequence[Message]
    ) -> None:
        ids = reference.ids(messages)
        expected = reference.greedy(messages, 12)
        async with embedded(llama) as model:
            greedy = await model.complete(call(messages, Sampling(max_tokens=12, logprobs=5)))
            plain = await model.complete(call(messages, Sampling(max_tokens=12)))
        assert greedy.text == plain.text
        assert plain.logprobs is None
        assert greedy.text.startswith(reference.tokenizer.decode(expected).rstrip("\N{REPLACEMENT CHARACTER}"))
        assert (greedy.prompt_tokens, greedy.completion_tokens, greedy.finish_reason) == (len(ids), 12, "length")
        assert len(greedy.logprobs or ()) == 12
        for place, position in enumerate(greedy.logprobs or ()):
            best = reference.logprobs_after([*ids, *expected[:place]]).topk(5)
            assert best.indices[0] == expected[place]
            # Tokens that are parts of characters share a name, and only the most probable of them is listed.
            others = iter(best.values.tolist())
            assert len(position) >= 3
            assert all(any(value == pytest.approx(other, abs=1e-3) for other in others) for value in position.values())

    async def test_results_do_not_depend_on_the_batch(self, llama: Path) -> None:
        calls = [
            call(messages, sampling, seed=number)
            for number, messages in enumerate(asked(24))
            for sampling in (
                Sampling(max_tokens=9, logprobs=3),
                Sampling(max_tokens=20, stop=("\n", OPEN)),
                Sampling(max_tokens=9, temperature=0.7, top_p=0.9),
            )
        ]
        async with embedded(llama) as model:
            together = await asyncio.gather(*map(model.complete, calls))
            alone = [await model.complete(each) for each in calls]
        for one, other in zip(together, alone, strict=True):
            assert (one.text, one.finish_reason, one.completion_tokens) == (
                other.text,
                other.finish_reason,
                other.completion_tokens,
            )
            for ours, theirs in zip(one.logprobs or (), other.logprobs or (), strict=True):
                assert dict(ours) == pytest.approx(dict(theirs), abs=1e-4)
        assert len({one.text for one in together}) > len(calls) / 2

    async def test_a_much_longer_prompt_does_not_change_the_others(self, llama: Path, reference: Reference) -> None:
        long = (Message("user", " ".join(f"word {n}" for n in range(1200))),)
        async with embedded(llama) as model:
            weighed, _ = await asyncio.gather(
                model.choose(call(long, choices=CLASSES["utility"])),
                model.choose(call(CHAT, choices=CLASSES["utility"])),
            )
        assert weighed.prompt_tokens > 2048
        assert weighed.probabilities == pytest.approx(reference.probabilities(long, CLASSES["utility"]), abs=1e-4)


class TestEnds:
    @pytest.mark.parametrize("place", [(6, 10), (3, 4), (0, 3), (11, 12), (9, 30)])
    async def test_a_reply_ends_before_a_stop_string(self, llama: Path, place: tuple[int, int]) -> None:
        async with embedded(llama) as model:
            whole = await model.complete(call(CHAT, LONG))
            stop = whole.text[slice(*place)]
            stopped = await model.complete(call(CHAT, Sampling(max_tokens=40, stop=("never met", stop), logprobs=1)))
        assert (stopped.text, stopped.finish_reason) == (whole.text.partition(stop)[0], "stop")
        assert stopped.completion_tokens == len(stopped.logprobs or ()) < whole.completion_tokens
        written = [next(iter(position)) for position in stopped.logprobs or ()]
        if "\N{REPLACEMENT CHARACTER}" not in stop:  # tokens that are parts of characters have no name of their own
            assert stop in "".join(written), "the tokens that hold it are counted"
        assert stop not in "".join(written[:-1])

    async def test_of_stop_strings_that_are_complete_together_the_first_counts(self, llama: Path) -> None:
        async with embedded(llama) as model:
            whole = (await model.complete(call(CHAT, LONG))).text
            end = next(end for end in range(6, len(whole)) if whole.find(whole[end - 2 : end]) == end - 2)
            stops = (whole[end - 2 : end], whole[:end])
            one = await model.complete(call(CHAT, Sampling(max_tokens=40, stop=stops)))
            other = await model.complete(call(CHAT, Sampling(max_tokens=40, stop=stops[::-1])))
        assert (one.text, other.text) == (whole[: end - 2], "")

    async def test_a_token_that_is_a_stop_string_ends_its_reply(self, copied: Path) -> None:
        force(copied, OPEN)
        async with embedded(copied) as model:
            stopped = await model.complete(call(CHAT, Sampling(max_tokens=40, stop=(OPEN,), logprobs=2)))
            onward = await model.complete(call(CHAT, Sampling(max_tokens=3)))
        assert (stopped.text, stopped.finish_reason, stopped.completion_tokens) == ("", "stop", 1)
        assert next(iter((stopped.logprobs or ())[0])) == OPEN
        assert onward.text == 3 * OPEN

    @pytest.mark.parametrize("token", ["<|eot_id|>", "<|end_of_text|>"], ids=["tokenizer", "settings"])
    async def test_the_end_of_turn_token_is_counted_but_not_shown(self, copied: Path, token: str) -> None:
        change(copied, "generation_config.json", eos_token_id=[1])
        force(copied, token)
        async with embedded(copied) as model:
            ended = await model.complete(call(CHAT, Sampling(max_tokens=5, logprobs=2)))
        assert (ended.text, ended.finish_reason, ended.completion_tokens) == ("", "stop", 1)
        assert next(iter((ended.logprobs or ())[0])) == token

    async def test_a_special_token_is_counted_but_not_shown(self, copied: Path) -> None:
        force(copied, "<|start_header_id|>")
        async with embedded(copied) as model:
            done = await model.complete(call(CHAT, Sampling(max_tokens=5, stop=("<|start_header_id|>",))))
        assert (done.text, done.finish_reason, done.completion_tokens) == ("", "length", 5)

    async def test_a_prompt_that_fills_the_context_is_an_overflow(self, llama: Path, copied: Path) -> None:
        change(copied, "config.json", max_position_embeddings=40)
        async with embedded(copied) as model:
            assert model.context_length == 40
            done = await model.complete(call(CHAT, Sampling(max_tokens=100)))
            assert done.finish_reason == "length"
            assert done.prompt_tokens + done.completion_tokens == 40
            for ask in (model.complete, model.choose):
                with pytest.raises(
                    ContextOverflow, match="the prompt has 46 tokens, but the model's context has only 40"
                ):
                    await ask(call([*CHAT, Message("user", "who " * 12)], choices=CLASSES["utility"]))


def force(folder: Path, token: str) -> None:
    """Change the weights so that this token always has by far the highest probability."""
    model = transformers.LlamaForCausalLM.from_pretrained(folder, dtype=torch.float32)
    id = transformers.AutoTokenizer.from_pretrained(folder).convert_tokens_to_ids(token)
    with torch.no_grad():
        for layer in model.model.layers:  # makes each layer the identity
            layer.self_attn.o_proj.weight.zero_()
            layer.mlp.down_proj.weight.zero_()
        model.model.embed_tokens.weight.abs_()
        model.lm_head.weight[id] = 9 * model.lm_head.weight.max()
    model.save_pretrained(folder)


class TestStopping:
    async def test_a_cancelled_reply_stops_between_tokens_and_no_other_of_its_batch(
        self, copied: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        force(copied, OPEN)  # its replies have no end of their own
        begun, drafts = threading.Event(), list[int]()
        generate, add = Llama.generate, Reply.add

        def noting(llama: Llama, *prompts: Any, stops: Callable[[int], bool], **options: Any) -> Any:
            def asked(index: int) -> bool:
                begun.set()
                return stops(index)

            return generate(llama, *prompts, stops=asked, **options)

        def note(reply: Reply, draft: Sequence[int], logits: Any) -> None:
            drafts.append(len(draft))
            add(reply, draft, logits)

        monkeypatch.setattr(Llama, "generate", noting)
        monkeypatch.setattr(Reply, "add", note)
        long = Sampling(max_tokens=1500)
        async with embedded(copied) as model:
            shorter, longer = (call((Message("user", text),), long) for text in ("who?", "who wrote it, and when?"))
            given_up, kept = (asyncio.create_task(model.complete(each)) for each in (shorter, longer))
            assert await asyncio.to_thread(begun.wait, 60)
            given_up.cancel()
            assert (await kept).completion_tokens == 1500
            assert len(drafts) == 2, "they were one batch"
            assert min(drafts) < max(drafts) == 1500
            assert (await model.complete(shorter)).completion_tokens == 1500, "it is made again as a whole"


class TestDraws:
    async def test_the_seed_determines_the_sample(self, llama: Path) -> None:
        drawn = Sampling(max_tokens=12, temperature=1.0)
        async with embedded(llama) as model:
            once, again, other = [(await model.complete(call(CHAT, drawn, seed=seed))).text for seed in (1, 1, 2)]
        assert once == again != other

    async def test_tokens_are_sampled_by_their_probability_at_the_temperature(
        self, llama: Path, reference: Reference
    ) -> None:
        probabilities = (reference.next_logprobs(CHAT) / 0.25).softmax(-1)
        best = probabilities.topk(3)
        sampling = Sampling(max_tokens=1, temperature=0.25, logprobs=0)
        async with embedded(llama) as model:
            drawn = await asyncio.gather(*(model.complete(call(CHAT, sampling, seed=seed)) for seed in range(600)))
        counts = Counter(next(iter((one.logprobs or ())[0])) for one in drawn)
        for id, probability in zip(best.indices.tolist(), best.values.tolist(), strict=True):
            share = counts[reference.tokenizer.decode([id])] / 600
            assert share == pytest.approx(probability, abs=4 * math.sqrt(probability / 600))

    async def test_each_token_is_sampled_given_the_sampled_ones_before(self, llama: Path, reference: Reference) -> None:
        sampling = Sampling(max_tokens=8, temperature=1.0, logprobs=4)
        ids = reference.ids(CHAT)
        async with embedded(llama) as model:
            drawn = await model.complete(call(CHAT, sampling, seed=3))
        written: list[int] = []
        for position in drawn.logprobs or ():
            logprobs = reference.logprobs_after([*ids, *written])
            own, *others = position.values()
            written.append(int((logprobs - own).abs().argmin()))
            assert logprobs[written[-1]] == pytest.approx(own, abs=1e-4)
            assert others == pytest.approx(
                [value for value in logprobs.topk(4).values.tolist() if abs(value - own) > 1e-4][:3], abs=1e-4
            )
        assert drawn.text.startswith(reference.tokenizer.decode(written).rstrip("\N{REPLACEMENT CHARACTER}"))
        assert written != reference.greedy(CHAT, 8)

    async def test_a_small_nucleus_leaves_the_most_probable_token(self, llama: Path) -> None:
        async with embedded(llama) as model:
            greedy = await model.complete(call(CHAT, LONG))
            nucleus = Sampling(max_tokens=40, temperature=1.0, top_p=1e-6)
            assert (await model.complete(call(CHAT, nucleus, seed=5))).text == greedy.text


def saved(tmp_path: Path, llama: Path, *, dtype: torch.dtype = torch.float32, **settings: object) -> Path:
    """Create a Llama of another architecture variant with the same tokenizer."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(llama)
    shape = {"hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4}
    config = transformers.LlamaConfig(
        vocab_size=len(tokenizer) + 7, initializer_range=0.2, eos_token_id=2, **(shape | settings)
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        model = transformers.LlamaForCausalLM(config).to(dtype)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if "norm" in name:
                weight.copy_(torch.linspace(0.5, 1.5, len(weight)))
    model.save_pretrained(tmp_path / "model", max_shard_size="100KB" if dtype is torch.float32 else "1GB")
    tokenizer.save_pretrained(tmp_path / "model")
    return tmp_path / "model"


class TestCheckpoints:
    @pytest.mark.parametrize(
        "settings",
        sampled(
            [
                {},
                {"dtype": torch.float16},
                {"dtype": torch.bfloat16},
                {"tie_word_embeddings": True},
                {"num_key_value_heads": 4},
                {"num_key_value_heads": 1},
                {"head_dim": 24, "num_key_value_heads": 2},
                {"rms_norm_eps": 0.3},
                {"rope_parameters": {"rope_type": "default", "rope_theta": 500.0}},
            ],
            every=3,
        ),
        ids=lambda settings: ",".join(f"{key}={value}" for key, value in settings.items()) or "shards",
    )
    async def test_every_variant_of_the_llama_architecture_is_supported(
        self, tmp_path: Path, llama: Path, settings: dict[str, object]
    ) -> None:
        folder = saved(tmp_path, llama, **settings)
        expected = Reference.of(folder)
        messages = asked(6)[5]
        async with embedded(folder) as model:
            weighed = await model.choose(call(messages, choices=CLASSES["utility"]))
            greedy = await model.complete(call(messages, Sampling(max_tokens=8, logprobs=1)))
        assert weighed.probabilities == pytest.approx(expected.probabilities(messages, CLASSES["utility"]), abs=1e-4)
        ids, written = expected.ids(messages), expected.greedy(messages, 8)
        own = [float(expected.logprobs_after([*ids, *written[:place]]).max()) for place in range(8)]
        assert [next(iter(position.values())) for position in greedy.logprobs or ()] == pytest.approx(own, abs=1e-3)

    async def test_configurations_of_older_versions_of_transformers_are_read(self, tmp_path: Path, llama: Path) -> None:
        theta = {"rope_type": "default", "rope_theta": 500.0}
        folder = saved(tmp_path, llama, rope_parameters=theta, num_key_value_heads=4)
        async with embedded(folder) as model:
            now = await model.choose(call(CHAT, choices=CLASSES["utility"]))
        change(folder, "config.json", rope_parameters=None, rope_theta=500.0, rope_scaling=None, head_dim=None)
        async with embedded(folder) as model:
            then = await model.choose(call(CHAT, choices=CLASSES["utility"]))
        assert now == then

    async def test_the_identity_depends_on_the_contents_of_the_folder_not_on_its_path(
        self, llama: Path, copied: Path
    ) -> None:
        async with embedded(llama) as model, embedded(copied) as same:
            assert model.identity == same.identity == model.identity_of("arg.relations")
            assert str(llama) not in model.identity
            assert model.label is None
        for name in ("model.safetensors", "tokenizer.json", "chat_template.jinja"):
            other = copied.with_name(name)
            shutil.copytree(llama, other)
            with (other / name).open("ab") as file:
                file.write(b"\n")
            async with embedded(other) as changed:
                assert changed.identity != model.identity

    def test_torch_is_not_imported(self, llama: Path) -> None:
        program = """
import asyncio, sys
sys.modules |= dict.fromkeys(("torch", "transformers", "safetensors"))  # as if they were not installed
from pipeline.config import default
from pipeline.llm.embedded.model import EmbeddedModel
from pipeline.llm.prompt import Call, Message, Sampling

async def main():
    async with default(EmbeddedModel, model=sys.argv[1]) as model:
        call = Call(None, (Message("user", "Who?"),), Sampling(max_tokens=3), key="k", seed=1)
        print((await model.complete(call)).completion_tokens)

asyncio.run(main())
"""
        done = subprocess.run([sys.executable, "-c", program, llama], capture_output=True, text=True, check=False)
        assert done.stdout == "3\n", done.stderr

    def test_an_unopened_model_can_be_pickled(self, llama: Path) -> None:
        assert pickle.loads(pickle.dumps(embedded(llama))) == embedded(llama)


TEMPLATES = {
    "llama 3": (
        "{{- bos_token }}{%- for message in messages %}"
        "{{- '<|start_header_id|>' + message['role'] + '<|end_header_id|>\n\n' + message['content'] | trim }}"
        "{{- '<|eot_id|>' }}{%- endfor %}"
        "{%- if add_generation_prompt %}{{- '<|start_header_id|>assistant<|end_header_id|>\n\n' }}{%- endif %}"
    ),
    "blocks on lines": (
        "{% for message in messages %}\n    {% if tools is none and documents is none %}\n"
        "{{ message.role }}: {{ message.content }}{{ eos_token }}\n    {% endif %}\n"
        "    {% if loop.index > 9 %}{% break %}{% endif %}\n{% endfor %}\n"
        "{% if add_generation_prompt %}\nassistant: \n{% endif %}"
    ),
}


class TestTemplates:
    @pytest.mark.parametrize("template", TEMPLATES.values(), ids=TEMPLATES)
    @pytest.mark.parametrize("place", ["file", "settings", "named"])
    async def test_prompts_are_those_of_transformers(self, copied: Path, template: str, place: str) -> None:
        (copied / "chat_template.jinja").unlink()
        if place == "file":
            (copied / "chat_template.jinja").write_text(template)
        else:
            named = [{"name": "tool_use", "template": "no"}, {"name": "default", "template": template}]
            change(copied, "tokenizer_config.json", chat_template=template if place == "settings" else named)
        tokenizer = transformers.AutoTokenizer.from_pretrained(copied)
        conversations = [
            CHAT,
            BEGUN,
            (*CHAT, Message("assistant", "it is \n")),
            (Message("user", " à\n 漢字<paragraph> <|eot_id|>THE"), Message("assistant", ""), *BEGUN),
        ]
        async with embedded(copied) as model:
            for messages in conversations:
                begun = messages[-1].role == "assistant"
                ids = tokenizer.apply_chat_template(
                    [message._asdict() for message in messages],
                    add_generation_prompt=not begun,
                    continue_final_message=begun,
                    return_dict=False,
                )
                assert model._chat.prompt_ids(messages) == ids

    async def test_a_template_can_refuse_a_prompt(self, copied: Path) -> None:
        (copied / "chat_template.jinja").write_text("{{ raise_exception('no ' + messages[0].role + ' here') }}")
        async with embedded(copied) as model:
            with pytest.raises(ServiceError, match="the chat template refuses the prompt: no system here"):
                await model.complete(call(CHAT))

    async def test_a_template_that_drops_the_beginning_of_the_reply_is_an_error(self, copied: Path) -> None:
        (copied / "chat_template.jinja").write_text("{{ messages[0].content }}")
        async with embedded(copied) as model:
            with pytest.raises(ServiceError, match="the chat template omits the beginning of the reply"):
                await model.complete(call(BEGUN))


def without(name: str) -> Callable[[Path], None]:
    return lambda folder: (folder / name).unlink()


def with_(name: str, **settings: object) -> Callable[[Path], None]:
    return lambda folder: change(folder, name, **settings)


def cut(name: str) -> Callable[[Path], None]:
    return lambda folder: (folder / name).write_bytes((folder / name).read_bytes()[:-4])


class TestMistakes:
    @pytest.mark.parametrize(
        ("mistake", "sentence"),
        [
            (without("config.json"), "is not a Hugging Face checkpoint: it contains no config.json"),
            (without("model.safetensors"), "contains no safetensors files; save the model with save_pretrained"),
            (
                without("tokenizer.json"),
                "has no tokenizer.json; save its tokenizer with transformers as a fast tokenizer",
            ),
            (without("tokenizer_config.json"), "it contains no tokenizer_config.json"),
            (without("chat_template.jinja"), "has no chat template, neither in chat_template.jinja nor in "),
            (cut("model.safetensors"), "model.safetensors is not a complete safetensors file"),
            (cut("config.json"), "config.json is not JSON"),
            (cut("tokenizer.json"), "tokenizer.json cannot be read"),
            (with_("config.json", model_type="qwen2"), "of type qwen2, but llm=embedded runs only Llamas; serve it "),
            (with_("config.json", attention_bias=True), "has attention_bias=True, which llm=embedded does not support"),
            (with_("config.json", hidden_act="gelu"), "has hidden_act=gelu"),
            (with_("config.json", quantization_config={"quant_method": "awq"}), "has quantization_config="),
            (with_("config.json", rope_scaling={"type": "linear"}, rope_parameters=None), r"positions \(linear\)"),
            (with_("config.json", rope_parameters={"rope_type": "llama3"}), r"scales its positions \(llama3\)"),
            (with_("config.json", num_hidden_layers=3), "is not a complete Llama checkpoint: 'model.layers.2"),
            (with_("config.json", rms_norm_eps=None), "is not a complete Llama checkpoint: 'rms_norm_eps' is missing"),
        ],
    )
    async def test_an_unsupported_checkpoint_is_a_user_error(
        self, copied: Path, mistake: Callable[[Path], None], sentence: str
    ) -> None:
        mistake(copied)
        with pytest.raises(UserError, match=sentence) as raised:
            await embedded(copied).__aenter__()
        assert str(copied) in str(raised.value)

    async def test_an_invalid_template_is_a_user_error(self, copied: Path) -> None:
        (copied / "chat_template.jinja").write_text("{% if %}")
        with pytest.raises(UserError, match=r"the chat template of .* cannot be read"):
            await embedded(copied).__aenter__()

    async def test_eight_bit_weights_are_a_user_error(self, copied: Path) -> None:
        file = copied / "model.safetensors"
        file.write_bytes(file.read_bytes().replace(b'"F32"', b'"I8" '))
        with pytest.raises(UserError, match="has weights in the unsupported format 'I8'; supported: F32, F16, BF16"):
            await embedded(copied).__aenter__()

    async def test_a_missing_folder_is_a_user_error(self, tmp_path: Path) -> None:
        with pytest.raises(UserError, match=r"llm.model=.*nowhere is not a folder on this machine"):
            await embedded(tmp_path / "nowhere").__aenter__()
        with pytest.raises(UserError, match="is not a checkpoint"):
            await embedded(tmp_path).__aenter__()

    async def test_the_default_is_the_bundled_model(
        self, llama: Path, reference: Reference, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("pipeline.llm.embedded.model.BUNDLED_MODEL", llama)
        async with default(EmbeddedModel) as model:
            assert (await model.complete(call(CHAT))).prompt_tokens == len(reference.ids(CHAT))


class TestManyCalls:
    async def test_one_call_after_the_other_on_one_thread(self, llama: Path) -> None:
        async with default(EmbeddedModel, model=str(llama), threads=1) as model, asyncio.timeout(60):
            for messages in asked(20):
                await model.complete(call(messages))

    async def test_cancelled_calls_do_not_affect_the_others(self, llama: Path) -> None:
        prompts = asked(40)
        async with embedded(llama) as model:
            asking = [asyncio.create_task(model.complete(call(messages, LONG))) for messages in prompts]
            await asyncio.sleep(0.01)
            for task in asking[::2]:
                task.cancel()
            done = await asyncio.gather(*asking, return_exceptions=True)
            again = await model.complete(call(prompts[1], LONG))
        assert [isinstance(one, asyncio.CancelledError) for one in done] == [True, False] * 20
        assert done[1] == again

    async def test_a_failed_batch_fails_only_its_calls(self, llama: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        async with embedded(llama) as model:
            with monkeypatch.context() as patch:
                patch.setattr(model._llama, "generate", lambda *words, **more: 1 / 0)
                asking = (model.complete(call(messages)) for messages in asked(5))
                failed = await asyncio.gather(*asking, return_exceptions=True)
            assert [type(error) for error in failed] == [ZeroDivisionError] * 5
            assert (await model.complete(call(CHAT))).completion_tokens == 12

    async def test_closing_waits_only_for_running_batches(self, llama: Path) -> None:
        async with embedded(llama) as model:
            asking = [asyncio.create_task(model.complete(call(messages, LONG))) for messages in asked(60)]
            await asyncio.sleep(0.01)
        assert not all(task.done() for task in asking)
        for task in asking:
            task.cancel()


def test_a_run_of_arg_answers_every_question(llama: Path, evaluate: Kgqa, tmp_path: Path) -> None:
    words = ["method=arg", "method.max_new_tokens=16", "llm=embedded", f"llm.model={llama}"]
    done = evaluate(*words)
    assert done.code == 0, done.err
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    (point,) = summary["points"]
    assert (point["questions"], point["failed"]) == (20, 0)
    assert summary["physical_llm_calls"] > 40
    assert "nothing to run" in evaluate(*words).err
