"""The model card: a README.md inside every model folder, so that it explains itself."""

from chainrule import config as settings
from chainrule.model import Model


def model_card(model: Model) -> str:
    """What the model is, what it was made of, how good it is, how to use it."""
    name = f"{model.family} language model"
    origin = model.origin
    chosen = "\n".join(f"| {key} | {value} |" for key, value in settings.to_json(model.config).items())
    figures = "\n".join(f"| {key} | {value} |" for key, value in model.metrics.items()) or "| none | |"
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
{chosen}

| figure | value |
|---|---|
{figures}

Use it:

    chainrule generate THIS_FOLDER
    chainrule evaluate THIS_FOLDER text.txt
"""
