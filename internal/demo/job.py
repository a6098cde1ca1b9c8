# What each job of the demo of flows executes. STEP says which job it is. It appends to a file when it begins, and when
# it has a result, so that the demo compares what was executed with what is recorded.
import json, os, sys, time

step, file = os.environ["STEP"], os.environ["DEMO_FILE"]


def write(**line):
    line.update(job=os.environ["POSTERN_JOB"], step=step)
    with open(file, "a") as f:
        f.write(json.dumps(line) + "\n")


def begun(of):
    with open(file) as f:
        return sum(line["step"] == of and "began" in line for line in map(json.loads, f))


write(began=True)
with open(os.environ["POSTERN_INPUTS"]) as f:
    n = 1 + sum(int(result["n"]) for result in json.load(f).values())
if step == "flaky" and int(os.environ["POSTERN_ATTEMPT"]) < 3:
    sys.exit("not yet")
if step == "poison":
    while not begun("sleeper"):
        time.sleep(0.05)
    sys.exit("this job is poisonous")
if step == "sleeper" or step == "doomed" and begun("doomed") == 1:
    print("sleeps", flush=True)
    time.sleep(600)
result = {"n": str(n)}
write(result=result)
with open(os.environ["POSTERN_RESULT"], "w") as f:
    json.dump(result, f)
print(step, "has", n)
