// Package devpg gives a developer, and the tests, a PostgreSQL without setting one up: it joins a server of ours that
// still runs, or starts the newest installed one from 15 up, or (if allowed) downloads one. For development and tests
// only, never for serve or work.
//
// # Who does what
//
// Start runs in our process, the parent. It never runs PostgreSQL itself but starts this program once more as a keeper:
// a child that makes the data directory, runs postgres, and stops it when its standard input ends. A parent that is
// killed, even by SIGKILL, thereby takes its server along; a keeper that is killed does so too (on Linux, by the signal
// that the kernel sends postgres then). The next Start joins a server that still survives.
//
// PostgreSQL refuses to run as root. There the keeper runs as the user postgres, or if there is none as the user
// without rights that Unix systems have. A directory that is closed to that user (a home directory, a checkout) is
// replaced by /var/lib/postern, which is said in one line.
//
// # Two at once
//
// A kept server lies under <state>/pg/<major>. Three lock files keep order; all are flocks, so that a crash frees them:
//
//   - pg/lock: one Start at a time decides between joining and starting.
//   - pg/<major>/users: every process that uses the server holds it shared; the keeper stops the server only once it
//     holds it alone. So the first process may end while another still works.
//   - pg/<major>/keeper: one keeper at a time touches the data directory.
package devpg
