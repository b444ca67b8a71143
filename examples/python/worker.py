"""A complete Punctual worker that needs nothing but Python 3. docs/guides/writing-workers.md explains it."""
import contextlib, http.client, io, json, os, signal, ssl, sys, threading, time
from urllib.request import Request, urlopen

SERVER = os.environ.get("PUNCTUAL_SERVER", "127.0.0.1:7070").removeprefix("http://").rstrip("/")
CA = os.environ.get("PUNCTUAL_TLS_CA")  # A file with CA certificates (PEM).
API = f"{SERVER if '://' in SERVER else ('https://' if CA else 'http://') + SERVER}/api/v1/worker/"
TLS = ssl.create_default_context(cafile=CA) if API.startswith("https:") else None
TOKEN, NAME = os.environ.get("PUNCTUAL_TOKEN"), os.environ.get("WORKER_NAME", "python")
QUEUES = [queue for queue in os.environ.get("WORKER_QUEUES", "").split(",") if queue]  # Empty: all queues.
LEASE_SECS = float(os.environ.get("WORKER_LEASE_SECS", "6"))  # How long it may fall silent.

def process_image(job):  # A long handler looks at job["stopped"] now and then, and raises an error if it is set.
    print("resizing", job["payload"]["imageUrl"])  # For `punctual job logs`.
    job["note"](progress={"percent": 50, "message": "resizing"})  # checkpoint={…}: for the next job.get("checkpoint").
    return {"file": job["payload"]["imageUrl"].rsplit("/", 1)[-1], "key": job["idempotency_key"]}
HANDLERS = {"ImageProcessing": process_image}
class Again(Exception):  # raise Again("busy", retry_after="10m"), or Again(snooze="10m"): no failure, just later.
    def __init__(self, error="", **when): super().__init__(error); self.when = when
def call(verb, body, method="POST"):  # The status and the answer; status 0 if none came.
    headers = {"Authorization": f"Bearer {TOKEN}", "Content-Type": "application/json"}
    try:
        request = Request(API + verb, json.dumps(body).encode(), headers, method=method)
        with urlopen(request, timeout=10, context=TLS) as answer:
            return answer.status, json.loads(answer.read() or "null")
    except (OSError, ValueError, http.client.HTTPException) as error:
        return getattr(error, "code", 0), error
def why(error): return f"{error} {getattr(error, 'read', bytes)().decode()}"
def start_over(reason, stopping):  # Ends the handler, which nothing else in Python can do: others may now run its job.
    print(f"{reason}: this worker ends what it runs, and connects again", file=sys.stderr, flush=True)
    if stopping.is_set(): os._exit(1)
    signal.setitimer(signal.ITIMER_REAL, 0)
    os.execv(sys.executable, [sys.executable, *sys.argv])
def watch(heard, stopping):  # If even this thread cannot run in time, SIGALRM ends the process and its handler.
    while time.monotonic() < heard["until"] - 0.3: time.sleep(0.1)
    start_over(f"{SERVER} has not answered in time", stopping)
def beat(session, job, sent, stopping, heard, status=200, beats=0):
    while status not in (401, 403, 410):  # The session is over, or its token was revoked.
        if status == 200:
            heard["until"] = sent + session["stop_after_secs"]
            signal.setitimer(signal.ITIMER_REAL, max(0.001, heard["until"] - time.monotonic()))
        if not beats: threading.Thread(target=watch, args=[heard, stopping], daemon=True).start()
        time.sleep(session["beat_secs"])
        sent, beats, drains = time.monotonic(), beats + 1, {"draining": True} if stopping.is_set() else {}
        status, answer = call("heartbeat", {"session": session["session"], "beat": beats, **drains})
        if status == 200 and job.get("lease") in answer["cancel"]: job["stopped"] = "cancelled"
        if status == 200 and answer["drain"]: stopping.set()  # People send it home: it polls no more.
    start_over("the session is lost", stopping)
class JobLog(io.TextIOBase):  # Sends what a handler prints to the server, line by line.
    def __init__(self, send): self.send, self.rest = send, ""
    def write(self, text):
        *lines, self.rest = (self.rest + text).split("\n")
        for first in range(0, len(lines), 1000): self.send(lines[first:first + 1000])
        return len(text)
def run(job):
    (timer := threading.Timer(job["timeout_secs"], job.update, [{"stopped": "timed_out"}])).start()
    try:
        with contextlib.redirect_stdout(JobLog(job["log"])) as log:
            result = json.loads(json.dumps(HANDLERS[job["job_type"]](job)))
        return {"outcome": "succeeded", "result": result}
    except Exception as error:
        if job["stopped"]: return {"outcome": job["stopped"]}
        when = getattr(error, "when", {})
        return {"outcome": "snoozed", **when} if "snooze" in when else {"outcome": "failed", "error": repr(error), **when}
    finally:
        timer.cancel()
        if log.rest: log.write("\n")

def main():
    if not TOKEN: exit(print("set PUNCTUAL_TOKEN to a token with the role worker", file=sys.stderr) or 2)
    turn, job, stopping, told, status = 0, {}, threading.Event(), False, 0
    served = {"job_types": list(HANDLERS), "queues": QUEUES}
    signal.signal(signal.SIGTERM, lambda *_: stopping.set())
    while status in (0, 503) and not stopping.wait(1 if told else 0):
        sent = time.monotonic()
        status, session = call("sessions", {"worker": NAME, **served, "lease_secs": LEASE_SECS})
        if status in (0, 503) and not told: told = print(f"waiting for {SERVER}: {session}", file=sys.stderr) or True
    if status != 201: exit(f"{SERVER} opened no session: {why(session)}")
    threading.Thread(target=beat, args=[session, job, sent, stopping, {}], daemon=True).start()
    poll, told = {"session": session["session"], **served, "held": [], "wait_secs": 5}, 200
    job["note"] = lambda **note: call("notes", {"session": poll["session"], "notes": [{**job["lease"], **note}]})
    job["log"] = lambda lines: call("logs", {"session": poll["session"], "execution_id": job["execution_id"],
                                             "lines": [{"message": line, "stream": "stdout"} for line in lines]})
    while not stopping.wait(0 if status in (200, 201) else 1):
        turn += 1  # Whatever became of the last poll: nothing is held here, so what a lost answer brought goes back.
        status, answer = call("poll", {**poll, "turn": turn})
        if status not in (200, told): print(f"{SERVER} answered no poll: {why(answer)}", file=sys.stderr, flush=True)
        if (told := status) in (401, 403): break
        for assignment in answer["assignments"] if status == 200 else []:
            lease = {key: assignment[key] for key in ("execution_id", "epoch")}
            absent = dict.fromkeys(("checkpoint", "traceparent", "tracestate"))
            job.update({**absent, **assignment}, stopped=None, lease=lease)
            report = {"session": poll["session"], **job["lease"], **run(job)}
            while not 200 <= call("report", {"reports": [report]})[0] < 429:
                time.sleep(1)
    call(f"sessions/{poll['session']}", {}, method="DELETE")
    exit(status in (401, 403))
if __name__ == "__main__": main()
