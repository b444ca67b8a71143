"""The worker of the examples, with handlers that wait for what a test does."""
import os, sys, time

sys.path.insert(0, os.environ["EXAMPLES"])
import worker


def wait(job):
    """Runs until it is stopped; a second attempt succeeds at once."""
    job["note"](progress={"percent": 5, "message": "waiting"}, checkpoint={"attempt": job["attempt_number"]})
    while job["attempt_number"] == 1:
        if job["stopped"]:
            raise RuntimeError("stopped")
        time.sleep(0.01)
    return {"worker": worker.NAME, "checkpoint": job["checkpoint"]}


def meet(job):
    """Runs until as many as are expected run at the same time."""
    place = job["payload"]["directory"]
    open(os.path.join(place, job["job_id"]), "w").close()
    while len(os.listdir(place)) < job["payload"]["expected"]:
        time.sleep(0.01)


def talk(job):
    """Prints without an end of line."""
    print(job["payload"], end="")


def fail(job):
    raise ValueError(job["payload"])


worker.HANDLERS = {"wait": wait, "meet": meet, "fail": fail, "talk": talk}
worker.main()
