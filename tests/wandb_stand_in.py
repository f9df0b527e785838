"""A stand-in on loopback for the part of W&B's server that creates sweeps and hands out their runs.

It expands a grid as the server does, one run for each heartbeat of an agent that has none, and then says `exit`.
"""

import itertools
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import yaml

PROJECT = {"id": "p", "name": "transformer-ablations", "entity": {"id": "e", "name": "lab"}}


class StandIn:
    """Serves until it is closed.

    Attributes:
        url: for WANDB_BASE_URL.
        sweeps: id → its configuration, as it came.
        asked: the names of the operations that came, in order.
    """

    def __init__(self) -> None:
        self.sweeps, self.asked, self.waiting, self.lock = {}, [], {}, threading.Lock()
        stand_in = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                try:
                    asked = json.loads(body)
                    answer = json.dumps(
                        {"data": stand_in.answer(asked["query"], asked.get("variables") or {})}
                    ).encode()
                except ValueError:  # its telemetry
                    answer = b"{}"
                self.send_response(200)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer)

            def log_message(self, *_: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def close(self) -> None:
        self.server.shutdown()

    def answer(self, query: str, variables: dict) -> dict:
        name = query.split("(")[0].split("{")[0].split()[-1]
        with self.lock:
            self.asked.append(name)
            return getattr(self, name, self.unknown)(variables)

    def unknown(self, variables: dict) -> dict:
        return {"viewer": {"id": "u", "entity": "lab", "username": "lab", "flags": "{}", "teams": {"edges": []}},
                "serverInfo": {"cliVersionInfo": {}, "features": [], "latestLocalVersionInfo": None}}  # fmt: skip

    def UpsertSweep(self, variables: dict) -> dict:
        sweep, config = f"sweep{len(self.sweeps)}", yaml.safe_load(variables["config"])
        self.sweeps[sweep] = config
        choices = {key: p.get("values", [p.get("value")]) for key, p in config["parameters"].items()}
        self.waiting[sweep] = [
            dict(zip(choices, values, strict=True)) for values in itertools.product(*choices.values())
        ]
        return {"upsertSweep": {"sweep": {"name": sweep, "project": PROJECT}, "configValidationWarnings": []}}

    def SweepWithRuns(self, variables: dict) -> dict:
        config = yaml.safe_dump(self.sweeps[variables["sweep"]])
        return {"project": {"sweep": {"id": variables["sweep"], "name": variables["sweep"], "config": config,
                                      "state": "RUNNING", "method": "grid", "runs": {"edges": []}}}}  # fmt: skip

    def CreateAgent(self, variables: dict) -> dict:
        return {"createAgent": {"agent": {"id": variables["sweep"]}}}

    def Heartbeat(self, variables: dict) -> dict:
        sweep, busy = variables["id"], json.loads(variables["runState"])
        commands = []
        if not any(busy.values()):
            if self.waiting[sweep]:
                values = self.waiting[sweep].pop(0)
                number = len(self.waiting[sweep])
                args = {key: {"value": value} for key, value in values.items()}
                commands = [
                    {"type": "run", "run_id": f"{sweep}r{number}", "args": args, "program": "experiments/train.py"}
                ]
            else:
                commands = [{"type": "exit"}]
        return {"agentHeartbeat": {"agent": {"id": sweep}, "commands": json.dumps(commands)}}
