"""Do the rates of `sme2prof llm` agree with what ExecuTorch's own Python runner for language models reports?

Every round runs the same program, on the same threads, with the same number of tokens, in a process of each
kind, in turn: `executorch.extension.llm.runner` (the peer), which generates an answer, and the kit's runner,
at the same prompt and in the middle of the same answer. The peer counts whole milliseconds, and the time of
its answer includes sampling, which is taken off. The median over the rounds stands for each.

    sme2prof export smollm2@layers=6,methods=1
    python bench/llm_peer.py FILE.pte [--prompt 128] [--answer 64] [--threads 1] [--rounds 7]
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
from pathlib import Path

from model_profiling.config.settings import Inputs
from model_profiling.core import process
from model_profiling.program.pte import read_program
from model_profiling.runs.feeding import feed
from model_profiling.targets import Job
from model_profiling.targets.host import HostTarget

PEER = """
import sys
import torch
from executorch.extension.pybindings import portable_lib
from executorch.extension.llm.runner import GenerationConfig, TextLLMRunner
pte, tokenizer, prompt, answer, threads = *sys.argv[1:3], *map(int, sys.argv[3:])
portable_lib._unsafe_reset_threadpool(threads)
runner = TextLLMRunner(pte, tokenizer)
found = []
for _ in range(2):
    runner.reset()
    config = GenerationConfig(echo=False, max_new_tokens=answer, temperature=0.0)
    runner.generate("a" * prompt, config, stats_callback=lambda stats: found.append(stats.to_json_string()))
print()
print(found[-1])
"""


def write_tokenizer(path: Path, size: int) -> None:
    """A tokenizer in Hugging Face's format: a token for each byte, and words that no text contains."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in plain]
    letters = [*map(chr, plain), *(chr(256 + number) for number in range(len(others)))]
    words = ["<unk>", "<s>", "</s>", *letters]
    words += [f"word{number}" for number in range(size - len(words))]
    special = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    bytewise = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    model = {"type": "BPE", "vocab": {word: number for number, word in enumerate(words)}, "merges": ["w o"]}
    content = {
        "version": "1.0",
        "added_tokens": [{"id": number, "content": words[number], **special} for number in range(3)],
        "normalizer": None,
        "pre_tokenizer": bytewise,
        "post_processor": None,
        "decoder": bytewise,
        "model": model,
    }
    path.write_text(json.dumps(content), encoding="utf-8")


def peer(pte: Path, tokenizer: Path, asked: argparse.Namespace) -> tuple[float, float]:
    """Milliseconds of the prompt, and of one token of the answer."""
    words = [pte, tokenizer, asked.prompt, asked.answer, asked.threads]
    done = process.run([sys.executable, "-c", PEER, *map(str, words)], timeout=600)
    if not done.ok:
        raise SystemExit(f"the peer failed:\n{done.tail(20)}")
    told = json.loads(done.stdout.strip().splitlines()[-1])
    if told["prompt_tokens"] != asked.prompt:
        raise SystemExit(f"the peer counts {told['prompt_tokens']} tokens in the prompt")
    prompt = asked.prompt * 1e3 / told["prefill_token_per_sec"]
    sampling = told["aggregate_sampling_time_ms"] / (asked.prompt + told["generated_tokens"])
    return prompt, 1e3 / told["decode_token_per_sec"] - sampling


def kit(pte: Path, host: HostTarget, asked: argparse.Namespace, folder: Path) -> tuple[float, float]:
    times = []
    for tokens, position in ((asked.prompt, 0), (1, asked.prompt + asked.answer // 2)):
        fed = feed(
            pte, "forward", Inputs(sizes={"tokens": (1, tokens)}, values={"input_pos": (float(position),)})
        )
        job = Job(
            pte, threads=asked.threads, warmup=1, runs=8, sizes=fed.sizes, values=fed.values, state=fed.state
        )
        done = host.execute(job, folder, f"kit_{tokens}")
        times.append(statistics.median(done.result.iterations_ns) / 1e6)
    return times[0], times[1]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("pte", type=Path)
    for name, value in (("prompt", 128), ("answer", 64), ("threads", 1), ("rounds", 7)):
        parser.add_argument(f"--{name}", type=int, default=value)
    asked = parser.parse_args()
    host, size = HostTarget(), read_program(asked.pte).fact("get_vocab_size")
    host.prepare()
    ours, theirs = [], []
    with tempfile.TemporaryDirectory() as kept:
        folder = Path(kept)
        write_tokenizer(folder / "tokenizer.json", size or 512)
        for number in range(asked.rounds):
            theirs.append(peer(asked.pte, folder / "tokenizer.json", asked))
            ours.append(kit(asked.pte, host, asked, folder))
            print(f"round {number + 1}: peer {theirs[-1]}, kit {ours[-1]}", flush=True)
    for place, (phase, tokens) in enumerate((("prompt", asked.prompt), ("answer", 1))):
        kit_ms, peer_ms = (statistics.median(each[place] for each in times) for times in (ours, theirs))
        print(
            f"{phase}: kit {tokens * 1e3 / kit_ms:.1f} tokens/s, peer {tokens * 1e3 / peer_ms:.1f} tokens/s, "
            f"ratio {peer_ms / kit_ms:.3f}"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
