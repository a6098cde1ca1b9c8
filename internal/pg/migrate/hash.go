package migrate

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"path"
	"regexp"
	"strconv"
	"strings"
	"sync"

	"github.com/pressly/goose/v3/database"
)

// recorder is goose's store, and writes besides the hash of the migration into its row of the version table. It does so
// in the SQL transaction of the migration, so that both are there or neither.
type recorder struct{ database.Store }

// CreateVersionTable makes goose's table with a column for the hash. A database of an earlier build lacks the column.
func (r recorder) CreateVersionTable(ctx context.Context, db database.DBTxConn) error {
	if err := r.Store.CreateVersionTable(ctx, db); err != nil {
		return err
	}
	_, err := db.ExecContext(ctx, "ALTER TABLE "+versionTable+" ADD COLUMN hash text")
	return err
}

// Insert notes that a migration was applied, with its hash.
func (r recorder) Insert(ctx context.Context, db database.DBTxConn, req database.InsertRequest) error {
	_, err := db.ExecContext(ctx, `INSERT INTO `+versionTable+` (version_id, is_applied, hash)
		VALUES ($1, true, nullif($2, ''))`, req.Version, hashes()[req.Version])
	return err
}

// idle finds the parts of a migration that do nothing: comments and white space. It leaves the comments by which goose
// tells up from down.
var idle = regexp.MustCompile(`(?m)--(?: [^+\n].*| ?|[^ \n].*)$|\s+`)

// hashes gives each migration of this program the hash of what it does.
var hashes = sync.OnceValue(func() map[int64]string {
	all := map[int64]string{}
	eachFile(func(file string, body []byte) {
		number, _, _ := strings.Cut(path.Base(file), "_")
		version, _ := strconv.ParseInt(number, 10, 64) // names has refused a file without a number
		all[version] = hash(string(body))
	})
	m, err := riverMigrator()
	if err != nil {
		panic(err)
	}
	for _, v := range m.AllVersions() {
		all[riverNumbers[v.Version]] = hash(v.SQLUp)
	}
	return all
})

// hash is that of a migration without its idle parts.
func hash(sql string) string {
	sum := sha256.Sum256([]byte(strings.Join(strings.Fields(idle.ReplaceAllString(sql, " ")), " ")))
	return hex.EncodeToString(sum[:16])
}

// changed tells whether an applied migration said something else when it was applied.
func (s State) changed() bool {
	return s.AppliedAt != nil && !s.Unknown && s.hash != hashes()[s.Version]
}
