package migrate

import "context"

// DownTo takes back the migrations above a version, as the database of an older program has it.
func DownTo(ctx context.Context, url string, version int64) error {
	db, p, err := open(url, nil)
	if err != nil {
		return err
	}
	defer db.Close()
	_, err = p.DownTo(ctx, version)
	return err
}

// HashOf is the hash of one migration.
func HashOf(sql string) string { return hash(sql) }
