"""A complete Punctual worker that needs nothing but Python 3. docs/guides/writing-workers.md explains it."""
import http.client, json, os, signal, sys, threading, time
from urllib.request import Request, urlopen

SERVER = os.environ.get("PUNCTUAL_SERVER", "127.0.0.1:7070").removeprefix("http://").rstrip("/")
API = f"http://{SERVER}/api/v1/worker/"
TOKEN, NAME = os.environ.get("PUNCTUAL_TOKEN"), os.environ.get("WORKER_NAME", "python")
LEASE_SECS = float(os.environ.get("WORKER_LEASE_SECS", "6"))  # How long it may fall silent.

def process_image(job):  # A long handler looks at job["stopped"] now and then, and raises an error if it is set.
    job["note"](progress={"percent": 50, "message": "resizing"})  # checkpoint={…}: for the next job.get("checkpoint").
    return {"file": job["payload"]["imageUrl"].rsplit("/", 1)[-1], "key": job["idempotency_key"]}
HANDLERS = {"ImageProcessing": process_image}
def call(verb, body, method="POST"):  # The status and the answer; status 0 if none came.
    headers = {"Authorization": f"Bearer {TOKEN}", "Content-Type": "application/json"}
    try:
        with urlopen(Request(API + verb, json.dumps(body).encode(), headers, method=method), timeout=10) as answer:
            return answer.status, json.loads(answer.read() or "null")
    except (OSError, ValueError, http.client.HTTPException) as error:
        return getattr(error, "code", 0), error
def beat(session, job, sent, stopping, status=200, beats=0):
    while status not in (401, 403, 410):  # The session is over, or its token was revoked.
        if status == 200:  # Unless the next one is answered in time, SIGALRM ends the process and its handler.
            signal.setitimer(signal.ITIMER_REAL, max(0.001, sent + session["stop_after_secs"] - time.monotonic()))
        time.sleep(session["beat_secs"])
        sent, beats, drains = time.monotonic(), beats + 1, {"draining": True} if stopping.is_set() else {}
        status, answer = call("heartbeat", {"session": session["session"], "beat": beats, **drains})
        if status == 200 and job.get("lease") in answer["cancel"]: job["stopped"] = "cancelled"
        if status == 200 and answer["drain"]: stopping.set()  # People send it home: it polls no more.
    print("the session is lost: others may now run what this worker holds", file=sys.stderr)
    os._exit(1)
def run(job):
    (timer := threading.Timer(job["timeout_secs"], job.update, [{"stopped": "timed_out"}])).start()
    try:
        return {"outcome": "succeeded", "result": json.loads(json.dumps(HANDLERS[job["job_type"]](job)))}
    except Exception as error:
        return {"outcome": job["stopped"]} if job["stopped"] else {"outcome": "failed", "error": repr(error)}
    finally:
        timer.cancel()

def main():
    if not TOKEN: exit(print("set PUNCTUAL_TOKEN to a token with the role worker", file=sys.stderr) or 2)
    sent, turn, job, stopping = time.monotonic(), 0, {}, threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stopping.set())
    status, session = call("sessions", {"worker": NAME, "job_types": list(HANDLERS), "lease_secs": LEASE_SECS})
    if status != 201: exit(f"{SERVER} opened no session: {session} {getattr(session, 'read', bytes)().decode()}")
    threading.Thread(target=beat, args=[session, job, sent, stopping], daemon=True).start()
    poll = {"session": session["session"], "job_types": list(HANDLERS), "held": [], "wait_secs": 5}
    job["note"] = lambda **note: call("notes", {"session": poll["session"], "notes": [{**job["lease"], **note}]})
    while not stopping.wait(0 if status in (200, 201) else 1):
        turn += 1  # Whatever became of the last poll: nothing is held here, so what a lost answer brought goes back.
        status, answer = call("poll", {**poll, "turn": turn})
        for assignment in answer["assignments"] if status == 200 else []:
            lease = {key: assignment[key] for key in ("execution_id", "epoch")}
            job.update({"checkpoint": None, **assignment}, stopped=None, lease=lease)
            report = {"session": poll["session"], **job["lease"], **run(job)}
            while not 200 <= call("report", {"reports": [report]})[0] < 429:
                time.sleep(1)
    call(f"sessions/{poll['session']}", {}, method="DELETE")
if __name__ == "__main__": main()
