-- +goose Up
-- Public keys of actors that were removed. A key names one actor for good, so that none of these comes back: what it
-- has signed would be another's, and a compromised one would be believed again. No row is ever deleted.
CREATE TABLE postern.spent_key (
    public_key bytea NOT NULL CONSTRAINT one_row_per_spent_key PRIMARY KEY
);
SELECT postern.renew_roles();

-- +goose Down
DROP TABLE postern.spent_key;
