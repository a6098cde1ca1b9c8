-- The legal edges of the machines (internal/sequencer/machine.md), so that a statement that would take an
-- illegal one fails. Literal, since a foreign key would lock and grow multixacts on the hot path.
-- +goose Up
ALTER TABLE postern.queue ADD CONSTRAINT phase_follows_the_machine CHECK (
((CASE was WHEN 'DISPATCHING' THEN 'BLOCKED' WHEN 'IDLE' THEN 'FREE' WHEN 'READY' THEN 'FREE' WHEN 'HELD' THEN 'FREE' ELSE was END), (CASE phase WHEN 'DISPATCHING' THEN 'BLOCKED' WHEN 'IDLE' THEN 'FREE' WHEN 'READY' THEN 'FREE' WHEN 'HELD' THEN 'FREE' ELSE phase END)) IN (('', 'FREE'), ('FREE', 'BLOCKED'), ('BLOCKED', 'INCLUSION'), ('BLOCKED', 'FREE'), ('BLOCKED', 'RETRY'), ('BLOCKED', 'BLOCKED'), ('INCLUSION', 'WAITING_INCLUSION'), ('WAITING_INCLUSION', 'WAITING_INCLUSION'), ('WAITING_INCLUSION', 'FREE'), ('WAITING_INCLUSION', 'RETRY'), ('INCLUSION', 'INCLUSION'), ('RETRY', 'RETRY'), ('DELAY', 'DELAY'), ('RETRY', 'DELAY'), ('RETRY', 'FREE'), ('DELAY', 'FREE'), ('DELAY', 'BLOCKED'), ('FREE', 'FREE'), ('INCLUSION', 'FREE')));
ALTER TABLE postern.outcome ADD CONSTRAINT outcome_follows_the_machine CHECK (
    state IN ('DONE', 'FAILED', 'UNRESOLVED', 'CANCELLED') AND
(was, state) IN (('', 'WAITING'), ('WAITING', 'DISPATCHING'), ('DISPATCHING', 'REVISION'), ('DISPATCHING', 'DONE'), ('DISPATCHING', 'WAITING'), ('DISPATCHING', 'UNRESOLVED'), ('DISPATCHING', 'RETRY'), ('DISPATCHING', 'FAILED'), ('DISPATCHING', 'DISPATCHING'), ('REVISION', 'REVISION'), ('REVISION', 'DONE'), ('REVISION', 'RETRY'), ('REVISION', 'FAILED'), ('RETRY', 'RETRY'), ('RETRY', 'FAILED'), ('RETRY', 'DONE'), ('RETRY', 'WAITING'), ('RETRY', 'DISPATCHING'), ('WAITING', 'CANCELLED'), ('WAITING', 'FAILED'), ('RETRY', 'CANCELLED'), ('REVISION', 'UNRESOLVED'), ('RETRY', 'UNRESOLVED')));

-- +goose Down
ALTER TABLE postern.outcome DROP CONSTRAINT outcome_follows_the_machine;
ALTER TABLE postern.queue DROP CONSTRAINT phase_follows_the_machine;
