"""Models on this machine, by llama.cpp."""
