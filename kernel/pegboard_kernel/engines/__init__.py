"""The server's side of engine processes: frames, supervision, admission and leases."""
