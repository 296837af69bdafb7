"""Models by name: `openai:gpt-5`, `bedrock:amazon.nova-pro-v1:0`, `llamacpp:/models/some.gguf`, `embedded`.

A name is a provider and, after a colon, what that provider calls the model. Nothing of a provider is imported before one of
its models is named. An id of Amazon Bedrock's may stand alone: those have a form that no other provider's ids have.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any

from antiphon.errors import InvalidInputError, MissingExtraError
from antiphon.models.base import Model
from antiphon.models.bidi import BidiModel

DEFAULT_LIVE_MODEL_ID = "amazon.nova-2-sonic-v1:0"
"""What a `BidiAgent` talks through when it is given no model."""

_PREFIX = re.compile(r"[A-Za-z][A-Za-z0-9_-]*")

# A maker, a dot and a name, with a region or `global` before them in an inference profile's id; or an ARN. Sources: "modelId" of
# "Converse" in the Amazon Bedrock API reference, and its list of model ids. Neither `gpt-5.1`, `qwen2.5` nor `some.gguf` is one.
_BEDROCK = re.compile(r"(?:[a-z-]+\.)?[a-z][a-z0-9]*\.(?!gguf$)[a-z][A-Za-z0-9._:-]*|arn:[^\s]+")


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a class is.

    Attributes:
        module: Its module.
        name: Its name.
        argument: The argument that takes the model's id.
        needs_id: Whether a name without an id names nothing.
        id_form: What an id is, for people.
        also: Further arguments that the class wants.
    """

    module: str
    name: str
    argument: str = "model_id"
    needs_id: bool = True
    id_form: str = "model id"
    also: Mapping[str, Any] = field(default_factory=dict[str, Any])

    def form(self, provider: str) -> str:
        """How a name is written."""
        if not self.argument:
            return provider
        return f"{provider}:<{self.id_form}>" if self.needs_id else f"{provider}[:<{self.id_form}>]"

    def make(self, model_id: str) -> Any:
        """An object of the class."""
        made = getattr(import_module(self.module), self.name)
        return made(**{self.argument: model_id}, **self.also) if model_id else made(**self.also)


_GEMINI = _Place("antiphon.models.google.gemini", "GeminiModel")
_GEMINI_LIVE = _Place("antiphon.models.google.live", "GoogleGeminiLiveModel")

_TURNS: Mapping[str, _Place] = {
    "anthropic": _Place("antiphon.models.anthropic.turns", "AnthropicModel"),
    "bedrock": _Place("antiphon.models.bedrock.converse", "BedrockModel"),
    "embedded": _Place("antiphon.models.embedded.turns", "EmbeddedModel", argument="", needs_id=False),
    "gemini": _GEMINI,
    "google": _GEMINI,
    "llamacpp": _Place(
        "antiphon.models.llamacpp.chat", "LlamaCppModel", argument="path", needs_id=False, id_form="file.gguf"
    ),
    "openai": _Place("antiphon.models.openai.chat", "OpenAIModel"),
    "openai-responses": _Place("antiphon.models.openai.responses", "OpenAIResponsesModel"),
}
_LIVE: Mapping[str, _Place] = {
    "bedrock": _Place("antiphon.models.bedrock.nova_sonic", "BedrockNovaSonicModel"),
    "embedded": _Place("antiphon.models.embedded.live", "EmbeddedBidiModel", argument="", needs_id=False),
    "gemini": _GEMINI_LIVE,
    "google": _GEMINI_LIVE,
    "openai": _Place(
        "antiphon.models.openai.realtime", "OpenAIRealtimeModel", also={"transcription_model_id": "gpt-transcribe"}
    ),
}

TURN_PROVIDERS = tuple(_TURNS)
LIVE_PROVIDERS = tuple(_LIVE)


def turn_model(name: str | None = None) -> Model:
    """The model that answers in turns, by its name; None is `BedrockModel` with its default.

    Raises:
        InvalidInputError: If the provider is unknown or missing, or the name names no model.
        MissingExtraError: If the provider's package is not installed.
        ModelCredentialsError: If the provider wants a key at once, and there is none.
    """
    model = _default() if name is None else _named(name, _TURNS, "Agent")
    assert isinstance(model, Model)  # noqa: S101 - the table names such classes only
    return model


def live_model(name: str | None = None) -> BidiModel:
    """The model to talk through, by its name; None is Amazon Nova 2 Sonic.

    Raises:
        InvalidInputError: As `turn_model`.
        MissingExtraError: As `turn_model`.
        ModelCredentialsError: As `turn_model`.
    """
    model = _named(DEFAULT_LIVE_MODEL_ID if name is None else name, _LIVE, "BidiAgent")
    assert isinstance(model, BidiModel)  # noqa: S101 - the table names such classes only
    return model


def _default() -> Any:
    """A model of Bedrock's, which nobody has named: where it cannot be made, its user has to be told where it comes from."""
    try:
        return _TURNS["bedrock"].make("")
    except MissingExtraError as error:
        how = (
            f"without model=, Amazon Bedrock is asked: pip install 'antiphon[{error.extra}]', or give model='embedded'"
        )
        raise MissingExtraError(error.package, error.extra, how=how) from error


def _split(name: str, places: Mapping[str, _Place]) -> tuple[str, str]:
    """Provider and id; no provider, where the name has none that could be meant."""
    if _BEDROCK.fullmatch(name):
        return "bedrock", name
    provider, colon, model_id = name.partition(":")
    if colon:
        return provider if _PREFIX.fullmatch(provider) else "", model_id
    without_id = name in places and not places[name].needs_id
    return (name, "") if without_id else ("", name)


def _named(name: str, places: Mapping[str, _Place], agent: str) -> Any:
    provider, model_id = _split(name, places)
    place = places.get(provider)
    forms = ", ".join(each.form(known) for known, each in places.items())
    if place is None:
        named = f"names the provider {provider!r}, which no {agent} has" if provider else "names no provider"
        raise InvalidInputError(
            f"model={name!r} {named}: write one of {forms}; an id of Amazon Bedrock's, such as "
            "'amazon.nova-pro-v1:0' or an ARN, may stand alone"
        )
    if place.needs_id and not model_id.strip():
        raise InvalidInputError(f"model={name!r} names no model: write one of {forms}")
    if model_id and not place.argument:
        raise InvalidInputError(f"model={name!r}: there is one {provider!r} model only; write {provider!r}")
    return place.make(model_id)
