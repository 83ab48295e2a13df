"""HTTP in, HTTP out: reads requests, calls one function, sends its value; no arithmetic, no SQL."""
