"""Questions about one training run of an 8B model, for tests of single estimates."""

from service.core.studies.runs import TrainingQuestion, TrainingRunQuestion
from service.core.studies.training_memory import estimate_training_memory
from service.core.studies.training_run import estimate_training_run
from tests.core.training_runs import on, snapshot

RUN = {
    "name": "run",
    "architecture": "llama-3.1-8b",
    "gpu": "h100-sxm5-80gb",
    "training_tokens": 10**12,
    "sizing": on(64),
}


def memory(**fields):
    question = TrainingQuestion.model_validate({"run": RUN | fields})
    return estimate_training_memory(question, snapshot())


def a_run(*, question=None, **fields):
    asked = TrainingRunQuestion.model_validate({"run": RUN | fields} | (question or {}))
    return estimate_training_run(asked, snapshot())
