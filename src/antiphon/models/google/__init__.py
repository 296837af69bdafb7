"""Models of Google: Gemini in turns, and Gemini Live."""
