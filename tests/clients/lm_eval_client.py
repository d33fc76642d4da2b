"""lm-evaluation-harness against `chainrule serve`, offline, with tasks of our own.

Run by served.py: `lm_eval_client.py FOLDER MODEL=ADDRESS…`, each model being the only one that is served there:
the harness does not say whose tokenizer it asks for.
"""

import importlib
import json
import math
import os
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any


def _mean(metric: str) -> dict[str, Any]:
    return {"metric": metric, "aggregation": "mean", "higher_is_better": True}


TASKS: dict[str, dict[str, Any]] = {
    "choosing": {
        "output_type": "multiple_choice",
        "doc_to_text": "question",
        "doc_to_choice": "choices",
        "doc_to_target": "answer",
        "metric_list": [_mean("acc"), _mean("acc_norm")],
    },
    "rolling": {
        "output_type": "loglikelihood_rolling",
        "doc_to_text": "",
        "doc_to_target": "text",
        "metric_list": [{"metric": "bits_per_byte", "aggregation": "bits_per_byte", "higher_is_better": False}],
    },
    "writing": {
        "output_type": "generate_until",
        "doc_to_text": "question",
        "doc_to_target": "written",
        "generation_kwargs": {"until": [" a"], "max_gen_toks": 10, "do_sample": False, "temperature": 0.0},
        "metric_list": [_mean("exact_match")],
    },
}


def write_tasks(folder: Path, expected: dict[str, Any], own: dict[str, Any]) -> Path:
    """Write the tasks and their data as files."""
    questions = [
        {**question, "written": written}
        for question, written in zip(expected["questions"], own["greedy"], strict=True)
    ]
    documents = {"choosing": questions, "rolling": [{"text": expected["text"]}], "writing": questions}
    task_folder = folder / "tasks"
    task_folder.mkdir(parents=True)
    for name, settings in TASKS.items():
        data = task_folder / f"{name}.jsonl"
        data.write_text("".join(json.dumps(d) + "\n" for d in documents[name]), encoding="utf-8")
        where = {"dataset_path": "json", "dataset_kwargs": {"data_files": {"test": str(data)}}}
        task = {"task": name, **where, "test_split": "test", "metadata": {"version": 1}, **settings}
        (task_folder / f"{name}.yaml").write_text(json.dumps(task), encoding="utf-8")  # JSON is YAML too
    return task_folder


def check(actual: dict[str, Any], own: dict[str, Any], answers: list[int]) -> None:
    """Check that the harness's figures equal those of `chainrule evaluate`, `score` and `generate`."""
    results, samples = actual["results"], actual["samples"]
    bits = results["rolling"]["bits_per_byte,none"]
    assert math.isclose(bits, own["bits_per_byte"], rel_tol=1e-6), (bits, own["bits_per_byte"])
    for sample in samples["choosing"]:
        for (log_prob, is_greedy), (own_log_prob, own_is_greedy) in zip(
            [response[0] for response in sample["resps"]], own["choices"][sample["doc_id"]], strict=True
        ):
            assert math.isclose(float(log_prob), own_log_prob, rel_tol=1e-5), (log_prob, own_log_prob)
            assert str(is_greedy) == str(own_is_greedy), sample
    best = [max((log_prob, i) for i, (log_prob, _) in enumerate(row))[1] for row in own["choices"]]
    right = sum(a == b for a, b in zip(best, answers, strict=True)) / len(answers)
    assert math.isclose(results["choosing"]["acc,none"], right)
    assert results["writing"]["exact_match,none"] == 1


def main(folder: Path, name: str, address: str) -> None:
    """One model, queried one by one and several at once."""
    expected = json.loads((folder / "expected.json").read_text(encoding="utf-8"))
    own = expected["models"][name]
    task_folder = write_tasks(folder / name, expected, own)
    lm_eval = importlib.import_module("lm_eval")
    tasks = importlib.import_module("lm_eval.tasks").TaskManager(
        include_path=str(task_folder), include_defaults=False
    )
    for options in ({"num_concurrent": 1, "batch_size": 2}, {"num_concurrent": 4, "batch_size": 1}):
        result = lm_eval.simple_evaluate(
            model="local-completions",
            model_args={
                "model": name,
                "base_url": f"{address}/v1/completions",
                "auth_token": os.environ["OPENAI_API_KEY"],
                "max_length": 65536,
                "max_retries": 1,
                **options,
            },
            tasks=list(TASKS),
            task_manager=tasks,
            bootstrap_iters=0,
            log_samples=True,
        )
        check(result, own, [question["answer"] for question in expected["questions"]])
    print(f"lm-evaluation-harness {version('lm-eval')}: {name}, {own['bits_per_byte']:.6f} bits per byte")


if __name__ == "__main__":
    for argument in sys.argv[2:]:
        main(Path(sys.argv[1]), *argument.split("=", 1))
