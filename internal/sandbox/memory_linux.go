package sandbox

import (
	"bytes"
	"os"
	"path/filepath"
	"strconv"
)

// overMemory says whether the processes of a box hold more memory of their own than they may, all together. What they
// share counts once; files that are only read do not count. The exact look costs time, and comes where a cheap one that
// counts too much is over the limit.
func overMemory(most int64) bool {
	return memoryOf("statm", resident) > most && memoryOf("smaps_rollup", proportional) > most
}

// memoryOf is a sum over all processes but the init.
func memoryOf(file string, read func(text []byte) int64) (sum int64) {
	found, _ := filepath.Glob("/proc/[0-9]*")
	for _, dir := range found {
		if dir != "/proc/1" {
			text, _ := os.ReadFile(dir + "/" + file) // one that has ended counts nothing
			sum += read(text)
		}
	}
	return sum
}

// resident reads /proc/<pid>/statm: all that is in memory.
func resident(text []byte) int64 {
	fields := bytes.Fields(text)
	if len(fields) < 2 {
		return 0
	}
	pages, _ := strconv.ParseInt(string(fields[1]), 10, 64)
	return pages * int64(os.Getpagesize())
}

// proportional reads /proc/<pid>/smaps_rollup: memory that is no file, and the nth part of memory that n processes
// share.
func proportional(text []byte) (sum int64) {
	for line := range bytes.Lines(text) {
		fields := bytes.Fields(line)
		if len(fields) == 3 && (string(fields[0]) == "Pss_Anon:" || string(fields[0]) == "Pss_Shmem:") {
			kib, _ := strconv.ParseInt(string(fields[1]), 10, 64)
			sum += kib << 10
		}
	}
	return sum
}
