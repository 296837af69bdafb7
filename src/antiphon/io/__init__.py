"""Both ends of a live call: the contracts of streams, and files as microphone and loudspeaker."""

from antiphon.agent.streams import InputSource, InputStream, OutputStream, OutputTarget
from antiphon.io.wav import WavIO
from antiphon.io.wav_input import WavInput
from antiphon.io.wav_output import Span, WavOutput

__all__ = ["InputSource", "InputStream", "OutputStream", "OutputTarget", "Span", "WavIO", "WavInput", "WavOutput"]
