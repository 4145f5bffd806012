// Package desk is the lock table: all that a client knows about its plain locks, and what it does next.
// It is a pure state machine. Events go in, each with the time; effects come out, in the order in which the
// caller carries them out. There is no clock, no goroutine, no channel, no mutex and no random number in it,
// so every order of events can be tried, and is (see the simulation and the search in its tests).
//
// Nothing imports it: it is the first step of a rebuild that was stopped, kept as a model of the plain lock's rules
// whose server answers as the real scripts do, so a change of a plain lock's script shows here. Its rules are those that
// the engine follows for plain locks, too: a new rule can be tried here first, where every order of events can be. "The
// rebuild" below says why it was stopped, and what is missing.
//
// # Words
//
// An entry is what is known of one key. A request is one caller's wish; it waits, is granted, or ends. A
// session is one acquisition id on the server; it asks, is held, ends, is gone. It belongs to its entry, never to a
// caller, so nothing has to be handed over when a caller leaves. A bid is a session that asks. A hold is one
// granted request, a part of a session; a re-entry is one more hold of the same session. The line is the waiting
// requests of an entry, in the order in which they came. A session is unsure if a command that may create it
// had no answer: it may still run. A tenure is how long a session may be passed on inside the process.
//
// # Session
//
//	asking ──granted──► held ──last hold gone──► ending ──released, or given up──► gone
//	   │                 │ ▲                        ▲
//	   │                 │ └─ passed on (R2)        │
//	   │                 └──lost, unsure────────────┤
//	   └──its request left, unsure (R6: an undo)────┘
//	   and to gone at once: a bid that is sure without a request; a session that is lost and sure
//
//	state    what may be in flight              holds   ends by
//	asking   one acquire, repeated (R7)         none    its answer; R6 when its request left
//	held     one re-entry or count; a renewal   1..n    the last hold's end (R2, else R4); a loss
//	ending   one release; a renewal             none    the release's answer; R4's end of giving up
//	gone     what comes for it touches nothing  none    –
//
// # Hold
//
//	held ──Unlock──► unlocking ──answer──► unlocked
//	  └──lost, expired, closed──► over
//
//	state      context  counts in the session  Unlock returns
//	held       alive    yes                    what the release comes to
//	unlocking  ended    until it is answered   ErrNotHeld: somebody else unlocks it
//	unlocked   ended    no                     ErrNotHeld
//	over       ended    no                     its cause, once
//
// # Rules
//
// After every event the entry is reviewed: what is, is compared with what is wanted, and what is missing is
// sent. Code and mutants refer to these numbers.
//
// R1 Who asks. The line asks one at a time: its first, when due says so. An ask uses up due; it
// brings an answer about the entry, or gives it back (it did not run, it had an error, its request left). Who
// can't ask holds up nobody: single attempts stand in no line, and after a grant that came too late the request
// goes to the line's end. An entry listens while a request waits, unless its only one has its first
// command in flight; and half a second longer.
//
// R2 Inside the process the line is served in order, without commands. A session whose last hold is
// unlocked goes to the first of the line if that wants the same (the watchdog's lease, no token), its
// tenure is not over, nothing of it is in flight or unsure, the server confirmed count 1, nobody ever asked more
// than LeaseTime of it, its last answered command was sent less than a tenure ago and after the last reason for
// doubt, and its deadline has not passed. Nobody is skipped: if the first wants something else, R4. An own
// held session means that nobody of the line asks.
//
// R3 A release names whom it wakes. The server keeps a list of the clients that wait; a release calls the
// first. A call makes due now; who asks after a call tells its place, and refused it stands in front. While
// somebody of the line waits and no own session is held, this client is on the list, or asks, or is about
// to. However a session of ours ends, due is now, or a call is certain. After a release that called one who had
// lost, the next ask within 5 ms leaves the lock to that one. When the line is left without the lock, the client
// leaves the list. Every line asks at the holder's end, and once a second whatever happens. If it is
// an own hold that is in the way, that is checked instead.
//
// R4 A session without holds is released: count 0, refusing late commands if it is unsure. Repeated until
// answered, or until the latest end that it may have: the receipt of each answer or error, and the lease, and
// for as long as late commands are refused if it is unsure. (Counted from the sending, a late command would leave the
// lock held for nobody.) Also a session that was lost, if it is unsure.
//
// R5 Counts belong to the session. One command at a time; unlocks, re-entries and extensions each in order; all
// holds unlocked at once: one release. When nothing is to do and the confirmed count is not the number of holds, it is
// set. An owner's request joins its held session, never a bid; if that ends first, the request stands in line
// where it came. A re-entry that is answered too late is repeated. A grant proves that our other sessions are lost.
//
// R6 A late answer of a request that left makes a session without holds (R2: the first of the line gets it if it
// fits; else R4). A bid that is not in flight and has no request: unsure, R4; else dropped. No other undoing exists.
//
// R7 An unknown result is no result. The command is repeated under the same id, and recognises itself.
//
// R8 Deadlines count from the sending of the last counted answer, on both clocks; package lease says how. A planned
// end and an expiry are one event: the hold is told, R4 follows. A lost hold is renewed no more. What was
// sent before a move of the keys is no answer. Nothing waits for a message alone.
//
// R9 Every command ends: with an answer, or with an error that stands for one. The caller of this package
// promises it.
//
// R10 Effects are carried out in their order. The context of a holder ends before the next holder is told.
//
// # The rebuild
//
// The table was to take the place of engine, held and pubsub. A shell around it (Lock, TryLock, Unlock, Extend, renewals,
// loss, the watchdog's batches, subscriptions, drain, close) was written and run on a real server. Of the 29 tests that
// integration then had for plain locks in its own folder, seven failed. Four wait for goroutines by the names of the
// engine's functions. Two want the errors of a subscription or a command that is refused for good, which the shell does
// not hand on. One is a bound that it breaks: 10,000 holds are renewed by commands of 3 keys each, not of 50 or more,
// since each entry has its own instant.
//
// Lines of code, without comments and blanks; the limit was 1,700:
//
//	the table, with what the shell needs of it     1,430
//	effects, calls, errors                           297
//	commands and answers                             216
//	holds and contexts                               194
//	owners and subscriptions, on the old packages     34
//	so far                                         2,171
//
// Missing in it: attempts by hand and watchers, for quorums (244 lines then); groups, and commands split while a slot
// moves (about 170); the parts of a quorum's copy (lower, raise, prolong, forsake a hold: 130); telemetry of commands, of
// renewals and of those who are passed on to (120; spans must begin outside of the mutex); panics of the user's code;
// undoing what a script that was refused half-way has done; locks that wait for their own client. By what they took then
// that makes about 2,900 lines for plain locks alone, and the old inside would stay beside it for fair and read-write
// locks and for several at once.
//
// It was slower, too. On a busy machine, both builds in one run, medians of 5 rounds: a pair cost the client 22.6 µs of
// processor time instead of 17.1 with 256 goroutines that have a key each (+ 32 %; 5 % were allowed), and 6.0 instead of
// 4.9 with 64 on one key (+ 21 %; 10 %). It made 39 allocations a pair instead of 4, and 17 instead of 5: a table that
// gives nothing out twice can't use memory again, while the engine does.
//
// Whoever goes on: join acquire, release and renew of the table with the commands of kind (each is translated twice), and
// give the table the readers' and the fair queue's rules before a shell is written. The gain is the way to read, not
// lines: the shell has what engine has, since contexts, owners, errors and telemetry are half of it.
package desk
