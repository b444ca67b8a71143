"""A complete Punctual worker that needs nothing but Python 3. docs/guides/writing-workers.md explains it."""
import http.client, json, os, signal, threading, time, urllib.error, urllib.request

SERVER, TOKEN = os.environ.get("PUNCTUAL_SERVER", "http://127.0.0.1:7070"), os.environ["PUNCTUAL_TOKEN"]
NAME, SLOTS, LEASE = os.environ.get("WORKER_NAME", "python"), 2, float(os.environ.get("WORKER_LEASE", "6"))
held, room = {}, threading.Condition()  # What this worker has leased and not yet reported.

def process_image(job):  # A long handler asks job["stop"].is_set() now and then, and raises an error if so.
    return {"file": job["payload"]["imageUrl"].rsplit("/", 1)[-1], "key": job["idempotency_key"]}

HANDLERS = {"ImageProcessing": process_image}

def call(verb, body=None, method="POST", timeout=10):  # The status and the answer; status 0 if none came.
    headers = {"Authorization": f"Bearer {TOKEN}", "Content-Type": "application/json"}
    data = None if body is None else json.dumps(body).encode()
    try:
        request = urllib.request.Request(f"{SERVER}/api/v1/worker/{verb}", data, headers, method=method)
        with urllib.request.urlopen(request, timeout=timeout) as answer:
            return answer.status, json.loads(answer.read() or "null")
    except urllib.error.HTTPError as error:
        return error.code, error.reason
    except (OSError, ValueError, http.client.HTTPException):
        return 0, "no answer"

def stop(job, outcome):
    job["stopped"] = outcome
    job["stop"].set()

def run(session, key, job):
    timer = threading.Timer(job["timeout_secs"], stop, [job, "timed_out"])
    timer.start()
    try:
        end = {"outcome": "succeeded", "result": json.loads(json.dumps(HANDLERS[job["job_type"]](job)))}
    except Exception as error:
        end = {"outcome": job["stopped"]} if "stopped" in job else {"outcome": "failed", "error": repr(error)}
    timer.cancel()
    report = {"session": session["session"], "execution_id": key[0], "epoch": key[1], **end}
    while not 200 <= call("report", {"reports": [report]})[0] < 429:
        time.sleep(1)
    with room:  # Not before the answer: whatever a poll does not name as held goes back to the queue.
        del held[key]
        room.notify_all()

def beat(session, sent):
    for beats in range(1, 2**53):  # Unless one is answered in time, SIGALRM ends the process, handlers and all.
        signal.setitimer(signal.ITIMER_REAL, max(0.001, sent + session["stop_after_secs"] - time.monotonic()))
        status = 0
        while status != 200:
            time.sleep(session["beat_secs"])
            now = time.monotonic()
            status, answer = call("heartbeat", ...)
