//! A database on a simulated disk. The process dies at a step of the log's device or of the data
//! component, and another process goes on.

use crate::script::{KEYS, ScriptedLife, first_life, later_life, read_all};
use crate::stores::{ENDINGS, Ending, SteppedStore};
use hyades_deuteronomy::torture::{ExecutedInLife, KeyState, LifeHistory, number};
use hyades_deuteronomy::{
    DataComponent, DataLayer, Database, Error, LogOptions, Operation, Options, ResumePoint,
    ScanOrder, UpdateLogging,
};
use hyades_platform::device::{SimulatedDevice, SimulatedDisk, SimulatedFault};
use std::collections::BTreeMap;
use std::ops::{Bound, ControlFlow};
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

/// The phase of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum LifePhase {
    /// Opens the database, with redo of the data component's missing operations.
    Opening,
    /// Transactions, flushes, and the proxy.
    Work,
    /// A checkpoint, up to where the data component is stable.
    Checkpoint,
    /// Truncation of the log.
    Truncation,
    /// The data component forgets deleted keys.
    Forgetting,
    /// Closes the database.
    Closing,
}

/// The point of a process's death: at a step, counted from 0.
#[derive(Clone, Copy, Debug)]
pub enum StopAt {
    /// A change of the log's device: a write, a sync, a change of names.
    Log(u64),
    /// A step of the data component.
    Data(u64),
}

/// A process. Log and data component die together.
pub struct Process {
    disk: SimulatedDisk,
    device: SimulatedDevice,
    phase: Mutex<LifePhase>,
    /// Whether the data component was the first to fail.
    data_has_failed: AtomicBool,
}

impl Process {
    /// Enters a phase, if the process is alive.
    pub fn enter(&self, phase: LifePhase) {
        if self.device.is_alive() {
            *self.phase.lock().unwrap() = phase;
        }
    }

    /// The present phase, or the phase of the death.
    fn phase(&self) -> LifePhase {
        *self.phase.lock().unwrap()
    }

    /// Makes a change of the data component; after the last change the log does not change either.
    fn change(&self, change: impl FnOnce() -> Result<(), Error>) -> Result<(), Error> {
        if !self.device.is_alive() {
            return Err(Error::DataComponent("the process has died".into()));
        }
        change().inspect_err(|_| {
            self.data_has_failed.store(true, Ordering::Relaxed);
            self.disk.kill();
        })
    }
}

/// The data component of a process.
struct DataOfProcess {
    data: Arc<dyn DataComponent>,
    process: Arc<Process>,
}

impl DataLayer for DataOfProcess {
    fn below(&self) -> &dyn DataComponent {
        &*self.data
    }

    fn apply(&self, batch: &[Operation<'_>]) -> Result<(), Error> {
        self.process.change(|| self.data.apply(batch))
    }

    fn checkpoint(&self, point: &ResumePoint) -> Result<(), Error> {
        self.process.change(|| self.data.checkpoint(point))?;
        if self.process.phase() == LifePhase::Checkpoint {
            self.process.enter(LifePhase::Truncation);
        }
        Ok(())
    }

    fn forget_below(&self, ts: u64) -> Result<(), Error> {
        if self.process.phase() == LifePhase::Truncation {
            self.process.enter(LifePhase::Forgetting);
        }
        self.process.change(|| self.data.forget_below(ts))
    }
}

/// The counts of events met.
#[derive(Debug, Default)]
pub struct StepCounts {
    /// Stops, by the number of earlier lives, at most 3, and the phase of the process.
    pub stops: BTreeMap<(usize, LifePhase), usize>,
    /// States compared with the history.
    pub judged: usize,
    /// Of the states compared, states without some committed, unacknowledged transactions.
    pub shorter: usize,
    /// Openings with operations applied again.
    pub redone: usize,
    /// Of these openings, openings with the data component at its last checkpoint.
    pub older: usize,
    /// Openings of several data components, one at a later checkpoint.
    pub uneven: usize,
    /// Transactions found dead by openings.
    pub dead: u64,
    /// Truncated bytes of the log.
    pub truncated: u64,
}

/// A database between two processes.
pub struct CrashWorld<S> {
    disk: SimulatedDisk,
    pub store: S,
    update_logging: UpdateLogging,
    /// The transactions run since the state was last read.
    history: Rc<LifeHistory>,
    next_write: u64,
    /// Where the processes have died, and how.
    lives: Vec<(Option<StopAt>, Ending)>,
}

impl<S: SteppedStore> CrashWorld<S> {
    /// A new database, without a process so far.
    pub fn new(store: S, update_logging: UpdateLogging) -> Self {
        let (disk, history, lives) = (SimulatedDisk::new(), Rc::default(), Vec::new());
        Self { disk, store, update_logging, history, next_write: 1, lives }
    }

    /// A copy of the state left by a crash.
    pub fn fork(&self) -> Self {
        let (disk, store, history) = (self.disk.fork(), self.store.fork(), self.history.clone());
        Self { disk, store, history, lives: self.lives.clone(), ..*self }
    }

    fn wrong(&self, what: &str) -> ! {
        panic!("{what}\nafter {:#?}", self.lives)
    }

    fn options(&self, device: &SimulatedDevice) -> Options {
        let is_first = self.lives.len() == 1;
        // The second life leaves a stream, and removes the stream's files when truncating the log.
        let streams = if self.lives.len() == 2 { 2 } else { 3 };
        let mut log = LogOptions::new(vec![PathBuf::from("/log")], streams);
        (log.buffer_bytes, log.segment_bytes, log.block_bytes) = (1 << 14, 1 << 14, 1 << 10);
        log.anchor_interval_bytes = 2 << 10;
        log.max_writers = 8;
        log.device = Arc::new(device.clone());
        log.stepped = true;
        let mut options = Options::new(log);
        // In later lives a half is less than the operations to redo.
        options.memory_bytes = if is_first { 32 << 10 } else { 8 << 10 };
        (options.sessions, options.transactions) = (4, 16);
        options.proxy_threads = 1..=1;
        options.update_logging = self.update_logging;
        options
    }

    /// The next process runs, and dies at `stop`, or after closing the database. Returns the phase
    /// of the death; None for a later death.
    pub fn live(
        &mut self,
        stop: Option<StopAt>,
        ending: Ending,
        seed: u64,
        met: &mut StepCounts,
    ) -> Option<LifePhase> {
        let device = self.disk.process(seed);
        match stop {
            Some(StopAt::Log(step)) => device.arm(SimulatedFault::Stop(step)),
            Some(StopAt::Data(step)) => self.store.stop_at(step, seed.is_multiple_of(2)),
            None => {}
        }
        met.uneven += usize::from(self.store.is_uneven());
        self.lives.push((stop, ending));
        let (phase, data_has_failed) = (Mutex::new(LifePhase::Opening), AtomicBool::new(false));
        let disk = self.disk.clone();
        let process = Arc::new(Process { disk, device, phase, data_has_failed });
        let mut held = None;
        let lived = self.run(&process, &mut held, met);
        let has_stopped = match stop {
            Some(StopAt::Log(_)) => {
                !process.device.is_alive() && !process.data_has_failed.load(Ordering::Relaxed)
            }
            Some(StopAt::Data(_)) => self.store.has_stopped(),
            None => false,
        };
        if !has_stopped {
            lived.unwrap_or_else(|error| self.wrong(&format!("it fails: {error}")));
            held = None;
        }
        match ending.power {
            true => self.disk.power_cut(seed),
            false => self.disk.kill(),
        }
        self.store.crash(ending, seed);
        // The process's memory is dropped when the process can do nothing any more.
        drop(held);
        if !has_stopped {
            self.check_content();
        }
        has_stopped.then(|| process.phase())
    }

    /// The next process finds the right state, and closes the database.
    pub fn live_on(&mut self, met: &mut StepCounts) {
        let seed = self.lives.len() as u64;
        let stopped = self.live(None, ENDINGS[seed as usize % ENDINGS.len()], seed, met);
        assert_eq!(stopped, None);
    }

    /// Opens the database, compares the state, works, and closes the database. `held` keeps the
    /// data component.
    fn run(
        &mut self,
        process: &Arc<Process>,
        held: &mut Option<Arc<dyn DataComponent>>,
        met: &mut StepCounts,
    ) -> Result<(), Error> {
        let data = self.store.open()?;
        *held = Some(Arc::clone(&data));
        let data = Arc::new(DataOfProcess { data, process: Arc::clone(process) });
        let database = Database::open(self.options(&process.device), data)?;
        let recovered = self.judge(&database, met)?;
        let mut life = ScriptedLife::new(&database, process, self.next_write);
        process.enter(LifePhase::Work);
        let worked = match self.lives.len() {
            1 => first_life(&mut life),
            _ => later_life(&mut life),
        };
        let ScriptedLife { mut executed, next_write, truncated, .. } = life;
        self.next_write = next_write;
        met.truncated += truncated;
        let closed = worked.and_then(|()| {
            process.enter(LifePhase::Closing);
            database.close()
        });
        executed.iter_mut().for_each(ExecutedInLife::look);
        if closed.is_ok()
            && let Some(open) = executed.iter().find(|executed| !executed.acknowledged)
        {
            self.wrong(&format!("it is closed, and {} is not acknowledged", open.ts));
        }
        let mut history = LifeHistory { base: recovered, executed };
        history.check_reads().unwrap_or_else(|wrong| self.wrong(&wrong.to_string()));
        self.history = Rc::new(history);
        closed
    }

    /// Reads the state: all acknowledged transactions are there, no transaction is there in part,
    /// and transactions lost in an earlier crash are not there.
    fn judge(&self, database: &Database, met: &mut StepCounts) -> Result<KeyState, Error> {
        let recovered = read_all(database)?;
        let checked = self.history.check_recovered(&KEYS, &recovered);
        checked.unwrap_or_else(|wrong| self.wrong(&wrong.to_string()));
        let has_redone = database.recovered().keys > 0;
        let before = self.lives.iter().nth_back(1);
        met.judged += 1;
        met.shorter += usize::from(with_values(&recovered) != self.last_state());
        met.redone += usize::from(has_redone);
        met.older += usize::from(has_redone && before.is_some_and(|(_, end)| end.kept == 0.0));
        met.dead += database.recovered().dead;
        Ok(recovered)
    }

    /// The state left by all committed transactions.
    fn last_state(&self) -> KeyState {
        with_values(&self.history.last_state())
    }

    /// After the database was closed the data component holds everything.
    fn check_content(&mut self) {
        let opened = self.store.open();
        let data = opened.unwrap_or_else(|error| self.wrong(&format!("it is closed: {error}")));
        let mut found = KeyState::new();
        let all = (Bound::Unbounded, Bound::Unbounded);
        let scanned = data.scan(all, ScanOrder::Ascending, &mut |item| {
            if let Some(value) = item.value {
                found.insert(item.key[0], Some(number(value)));
            }
            ControlFlow::Continue(())
        });
        scanned.unwrap_or_else(|error| self.wrong(&format!("it is closed: {error}")));
        let expected = self.last_state();
        if found != expected {
            self.wrong(&format!("the data component holds {found:?}, not {expected:?}"));
        }
    }

    /// Runs copies of the database, each up to a step of the log's device or of the data component:
    /// the first, the second, and so on, to the last. Each step is met by `endings` endings, from
    /// `first` on. `then` gets the remaining state, the phase of the process, and the number of the
    /// ending.
    pub fn at_each_step(
        &self,
        (first, endings): (usize, usize),
        met: &mut StepCounts,
        then: &mut dyn FnMut(Self, LifePhase, usize, &mut StepCounts),
    ) {
        for at in [StopAt::Log, StopAt::Data] {
            for step in 0.. {
                let mut survived = 0;
                for nth in first..first + endings {
                    let ending = (nth + step as usize) % ENDINGS.len();
                    let seed = 1000 * self.lives.len() as u64 + 7 * step + nth as u64;
                    let mut copy = self.fork();
                    match copy.live(Some(at(step)), ENDINGS[ending], seed, met) {
                        Some(phase) => {
                            let before = self.lives.len().min(3);
                            *met.stops.entry((before, phase)).or_default() += 1;
                            then(copy, phase, ending, met);
                        }
                        None => survived += 1,
                    }
                }
                if survived > 0 {
                    let stop = at(step);
                    assert_eq!(survived, endings, "{stop:?}: the number of steps differs");
                    break;
                }
            }
        }
    }
}

/// The keys of a state with a value.
fn with_values(state: &KeyState) -> KeyState {
    state.iter().filter(|(_, written)| written.is_some()).map(|(k, w)| (*k, *w)).collect()
}
