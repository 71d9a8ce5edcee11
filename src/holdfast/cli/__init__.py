"""The command line: arguments in, the engine called, text or JSON out. Only it prints and reads variables."""
