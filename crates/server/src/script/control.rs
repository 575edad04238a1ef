//! Ends scripts that take too long, or that are killed.

use hyades::Abort;
use hyades_platform::sync::Unpoisoned;
use std::cell::{Cell, RefCell};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Why a script ends, whatever it catches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Halt {
    /// The transaction has ended, or is too much for an event loop.
    Abort(Abort),
    /// The slice of an event loop is over.
    Slice,
    /// The script has run as long as a script may.
    TooLong,
    /// SCRIPT KILL or FUNCTION KILL.
    Killed,
}

/// How long a script may run.
#[derive(Clone)]
pub struct ScriptLimits {
    /// The time.
    pub time: Duration,
    /// Why the script ends then.
    pub halt: Halt,
    /// The script among those that can be killed.
    pub running: Option<Arc<Running>>,
}

/// A script or a function that takes its time, and can be killed.
#[derive(Debug)]
pub struct Running {
    /// The name of a function; none of a script.
    pub function: Option<Vec<u8>>,
    /// The command, as the client has sent it, or the first words of it.
    pub command: Vec<Vec<u8>>,
    /// When it was begun.
    pub began: Instant,
    is_killed: AtomicBool,
}

/// Words of a command that are shown.
const SHOWN_WORDS: usize = 8;

/// All scripts that can be killed.
#[derive(Debug, Default)]
pub struct RunningScripts {
    all: Mutex<Vec<Arc<Running>>>,
}

/// Ends the entry of a script when it is dropped.
pub struct RunningGuard<'a> {
    scripts: &'a RunningScripts,
    /// The entry.
    pub running: Arc<Running>,
}

impl Drop for RunningGuard<'_> {
    fn drop(&mut self) {
        let mut all = self.scripts.all.lock().unpoisoned();
        all.retain(|other| !Arc::ptr_eq(other, &self.running));
    }
}

impl RunningScripts {
    /// A script, or a function of this name, begins.
    pub fn begin(&self, function: Option<&[u8]>, command: &[&[u8]]) -> RunningGuard<'_> {
        let running = Arc::new(Running {
            function: function.map(<[u8]>::to_vec),
            command: command.iter().take(SHOWN_WORDS).map(|word| word.to_vec()).collect(),
            began: Instant::now(),
            is_killed: AtomicBool::new(false),
        });
        self.all.lock().unpoisoned().push(running.clone());
        RunningGuard { scripts: self, running }
    }

    /// Ends all scripts, or all functions. Returns how many.
    pub fn kill(&self, functions: bool) -> usize {
        let all = self.all.lock().unpoisoned();
        let killed = all.iter().filter(|running| running.function.is_some() == functions);
        killed.inspect(|running| running.is_killed.store(true, Relaxed)).count()
    }

    /// The function that has run longest.
    pub fn first_function(&self) -> Option<Arc<Running>> {
        let all = self.all.lock().unpoisoned();
        all.iter().find(|running| running.function.is_some()).cloned()
    }
}

/// The clock of the script that an interpreter runs.
#[derive(Default)]
pub struct Control {
    halt: Cell<Option<Halt>>,
    ends: Cell<Option<(Instant, Halt)>>,
    running: RefCell<Option<Arc<Running>>>,
    /// The version of the protocol that the script has asked for.
    pub protocol: Cell<i64>,
    /// What `math.random` draws from. `math.randomseed` holds to the end of the script.
    pub random: RefCell<fastrand::Rng>,
}

impl Control {
    /// A script begins.
    pub fn begin(&self, limits: &ScriptLimits) {
        self.halt.set(None);
        self.protocol.set(2);
        *self.random.borrow_mut() = fastrand::Rng::new();
        self.ends.set(Some((Instant::now() + limits.time, limits.halt)));
        (*self.running.borrow_mut()).clone_from(&limits.running);
    }

    /// The script has ended. Returns why, if it was ended.
    pub fn end(&self) -> Option<Halt> {
        self.ends.set(None);
        self.running.borrow_mut().take();
        self.halt.take()
    }

    /// Ends the script.
    pub fn halt(&self, halt: Halt) {
        if self.halt.get().is_none() {
            self.halt.set(Some(halt));
        }
    }

    /// Whether the script was ended.
    pub fn is_halted(&self) -> bool {
        self.halt.get().is_some()
    }

    /// Asked now and then: whether the script goes on.
    pub fn goes_on(&self) -> bool {
        self.goes_on_at(Instant::now())
    }

    /// The same, at a time that is known.
    pub fn goes_on_at(&self, now: Instant) -> bool {
        if self.is_halted() {
            return false;
        }
        let is_killed =
            self.running.borrow().as_ref().is_some_and(|own| own.is_killed.load(Relaxed));
        if is_killed {
            self.halt(Halt::Killed);
        } else if let Some((end, halt)) = self.ends.get()
            && now >= end
        {
            self.halt(halt);
        }
        !self.is_halted()
    }
}
