"""How a process lives: configuration, signals, health, the stage loop, the stream to control."""
