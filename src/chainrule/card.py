"""Model card: the README.md of a model folder."""

from chainrule import config as settings
from chainrule.model import Model


def model_card(model: Model) -> str:
    """Return the model card as Markdown: provenance, settings, metrics and usage."""
    name = f"{model.family} language model"
    origin = model.origin
    settings_rows = "\n".join(f"| {key} | {value} |" for key, value in settings.to_json(model.config).items())
    metric_rows = "\n".join(f"| {key} | {value} |" for key, value in model.metrics.items()) or "| none | |"
    return f"""# {name}

Made by chainrule {origin.versions.get("chainrule", "")} on {origin.created}, with

    {origin.command}

- Training text: {origin.text}, sha256 {origin.fingerprint.sha256 if origin.fingerprint else "unknown"}
- Tokenizer: {model.tokenizer.config.kind}, {model.tokenizer.vocab_size} ids
- Context: {model.lm.context}
- Parameters: {model.parameters}
{"" if model.lm.is_normalized else "- Gives scores, not probabilities."}
| setting | value |
|---|---|
{settings_rows}

| figure | value |
|---|---|
{metric_rows}

Use it:

    chainrule generate THIS_FOLDER
    chainrule evaluate THIS_FOLDER text.txt
"""
