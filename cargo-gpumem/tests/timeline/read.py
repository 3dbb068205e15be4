"""Reads a snapshot with nothing but Python, and prints the most live bytes, the bytes of the segment, and the file of the layers."""

import pickle
import sys


class Plain(pickle.Unpickler):
    def find_class(self, module, name):
        raise pickle.UnpicklingError(f"{module}.{name} is no plain value")


with open(sys.argv[1], "rb") as file:
    snapshot = Plain(file).load()

(segment,) = snapshot["segments"]
(trace,) = snapshot["device_traces"]
blocks = segment["blocks"]
assert segment["total_size"] == sum(block["size"] for block in blocks)
assert all(a["address"] + a["size"] == b["address"] for a, b in zip(blocks, blocks[1:]))
assert segment["allocated_size"] == sum(block["size"] for block in blocks if block["state"] == "active_allocated")

end = segment["address"] + segment["total_size"]
live, most, alive = 0, 0, {}
assert trace[0]["action"] == "segment_alloc" and trace[0]["size"] == segment["total_size"]
for event in trace[1:]:
    assert segment["address"] <= event["addr"] and event["addr"] + event["size"] <= end
    assert all(set(frame) == {"name", "filename", "line"} for frame in event["frames"])
    if event["action"] == "alloc":
        assert event["size"] == 0 or event["addr"] not in alive
        if event["size"]:
            alive[event["addr"]] = event["size"]
        live += event["size"]
    elif event["action"] == "free_completed":
        if event["size"]:
            assert alive.pop(event["addr"]) == event["size"]
        live -= event["size"]
    else:
        assert event["action"] == "free_requested"
    most = max(most, live)

files = {frame["filename"] for event in trace for frame in event["frames"] if frame["line"]}
print(most, segment["total_size"], *sorted(files))
