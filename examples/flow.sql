-- A graph of scripts, posted in the transaction of an application: its own row and the jobs are committed together.
-- docs/sql-flows.md tells what becomes of it.
CREATE TABLE orders (id int PRIMARY KEY, total int);

BEGIN;
INSERT INTO orders VALUES (4711);
SELECT postern.submit_many(jsonb_build_array(
    jsonb_build_object('type', 'job.python', 'uid', 'order-4711-items', 'data', jsonb_build_object(
        'script', 'print(40)')),
    jsonb_build_object('type', 'job.python', 'uid', 'order-4711-postage', 'max_retries', 3, 'data', jsonb_build_object(
        'script', 'print(2)', 'timeout', 60, 'env_vars', jsonb_build_object('COUNTRY', 'NL'))),
    jsonb_build_object('type', 'job.python', 'uid', 'order-4711-sum',
        'depends_on', jsonb_build_array('order-4711-items', 'order-4711-postage'),
        'data', jsonb_build_object('script', $script$
import json, os
with open(os.environ["POSTERN_INPUTS"]) as f:
    n = sum(int(result["stdout"]) for result in json.load(f).values())
with open(os.environ["POSTERN_RESULT"], "w") as f:
    json.dump({"n": str(n)}, f)
$script$))));
COMMIT;
