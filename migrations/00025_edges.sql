-- The legal edges of the machines (internal/sequencer/machine.md), so that a statement that would take an
-- illegal one fails. Literal, since a foreign key would lock and grow multixacts on the hot path.
-- +goose Up
ALTER TABLE postern.queue ADD CONSTRAINT phase_follows_the_machine CHECK (
CASE was WHEN '' THEN phase IN ('IDLE', 'READY', 'HELD') WHEN 'IDLE' THEN phase IN ('DISPATCHING', 'IDLE', 'READY', 'HELD') WHEN 'READY' THEN phase IN ('DISPATCHING', 'IDLE', 'READY', 'HELD') WHEN 'HELD' THEN phase IN ('DISPATCHING', 'IDLE', 'READY', 'HELD') WHEN 'DISPATCHING' THEN phase IN ('INCLUSION', 'IDLE', 'READY', 'HELD', 'RETRY', 'DISPATCHING') WHEN 'INCLUSION' THEN phase IN ('WAITING_INCLUSION', 'INCLUSION', 'IDLE', 'READY', 'HELD') WHEN 'WAITING_INCLUSION' THEN phase IN ('WAITING_INCLUSION', 'IDLE', 'READY', 'HELD', 'RETRY') WHEN 'RETRY' THEN phase IN ('RETRY', 'DELAY', 'IDLE', 'READY', 'HELD') WHEN 'DELAY' THEN phase IN ('DELAY', 'IDLE', 'READY', 'HELD', 'DISPATCHING') ELSE false END);
ALTER TABLE postern.outcome ADD CONSTRAINT outcome_follows_the_machine CHECK (
    state IN ('DONE', 'FAILED', 'UNRESOLVED', 'CANCELLED') AND
CASE was WHEN '' THEN state IN ('WAITING') WHEN 'WAITING' THEN state IN ('DISPATCHING', 'CANCELLED', 'FAILED') WHEN 'DISPATCHING' THEN state IN ('REVISION', 'DONE', 'WAITING', 'UNRESOLVED', 'RETRY', 'FAILED', 'DISPATCHING') WHEN 'REVISION' THEN state IN ('REVISION', 'DONE', 'RETRY', 'FAILED', 'UNRESOLVED') WHEN 'RETRY' THEN state IN ('RETRY', 'FAILED', 'DONE', 'WAITING', 'DISPATCHING', 'CANCELLED', 'UNRESOLVED') ELSE false END);

-- +goose Down
ALTER TABLE postern.outcome DROP CONSTRAINT outcome_follows_the_machine;
ALTER TABLE postern.queue DROP CONSTRAINT phase_follows_the_machine;
