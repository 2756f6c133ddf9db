"""How it is sent: group streams over Redis, weights over a broadcast group."""
