// Package crontab reads a crontab, a user's or the system's, line by line, and
// says which jobs its lines would be. It is pure: it runs nothing and makes
// nothing.
//
// # Lines
//
// As in cron, a line is one of these; blanks before it don't count.
//
//	                                 blank lines and those that begin with # say nothing
//	NAME = value                     a variable for the commands below
//	minute hour day month weekday command
//	@daily command                   and the other names of package cron
//
// In a system crontab (Options.System), the name of a user stands before the
// command. A line that can't be taken is reported with its field and reason and
// never stops the others. Blanks round the = don't count; name and value may
// stand in quotes of either kind, which keep the blanks within. Nothing is
// expanded.
//
// The five fields are those of package cron, which has all that cron has. What
// cronie and OpenBSD write as a~b, a random number for each reading of the
// table, becomes H(a-b), which is the same number for ever. A - before the
// first field, which keeps a line out of cron's log, is dropped.
//
// # Time zones
//
// CRON_TZ sets the zone of the lines below it, until the next one; an empty
// value gives the default back. Without a CRON_TZ, TZ does the same; it also is
// a variable for the command. Lines below one that names an unknown zone are
// refused, since in any other zone they would run at the wrong time.
//
// # What is not taken over
//
// MAILTO and what else is about mail, RANDOM_DELAY and LOGNAME are ignored, with
// the reason. @reboot is refused: it is an event, not a time.
//
// # Commands
//
// In a command, the first % ends it; what follows is the command's standard
// input, with a line end for each further % and one at the end. \% is a %.
//
// # Names
//
// A job's name is made of its command and its user, so that a changed schedule
// changes the job and a moved line changes nothing: a few words of the command,
// for people, and a hash of all of it. The second line with the same command and
// user gets ".2", the third ".3".
package crontab
