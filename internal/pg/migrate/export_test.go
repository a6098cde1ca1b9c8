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

// UpTo applies the migrations up to a version, as an older program does.
func UpTo(ctx context.Context, url string, version int64) error {
	db, p, err := open(url, nil)
	if err != nil {
		return err
	}
	defer db.Close()
	if err := makeSchema(ctx, db); err != nil {
		return err
	}
	_, err = p.UpTo(ctx, version)
	return err
}
