// Package sandbox runs one script in a box and says what became of it. In go a script, its environment, inputs and
// limits; out come its lines while it runs, and one Outcome at its end, when no process of it is alive any more.
//
// The processes, from the outside in:
//
//	runner        Start, Stop, Kill, Wait; reads the output; removes the directory
//	  init        this program again, pid 1 of new namespaces: builds the root of the box, reaps, ends everything
//	    step      this program a third time: gives up all rights, sets the limits, and becomes the script
//	      ...     what the script starts, also what leaves its session
//
// The init holds one end of a pipe to the runner. It ends when the runner ends, however that happens, and the kernel
// kills what is left in its pid namespace. Inside there are read-only parts of the host (/usr, /bin, /lib and a few
// files of /etc), /tmp, five devices, a /proc of its own and the directory of the script as /job. Nothing else of the
// host can be reached: no file, no process, no UNIX socket, and no network unless the script may use it. With the
// network of the host come its abstract UNIX sockets. The user of the box is uid 0 inside and an unprivileged one
// outside: the first uid of the runner's range plus the slot, or the runner's own user where the runner is not root.
//
// The limits: rlimits for each process, and for all together a cgroup (level strict), or the init, which adds up their
// memory ten times a second (level partial). The size of all files in the directory together has no limit.
//
// Where the kernel refuses this, New refuses: it never runs a script with less than it was told to demand.
package sandbox
