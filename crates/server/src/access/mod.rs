//! Users and their rules, logins, and refusals.
//!
//! While there is only the default user, allowed to do all without a password, no check runs beside
//! the check for this case.

mod denied;
mod rules;
mod throttle;
mod users;

pub use denied::{DeniedEntry, DeniedIn, Reason};
pub use rules::{Denied, Selector};
pub use users::{DEFAULT, User, Users, hexadecimal, user_name};

use denied::DeniedLog;
use hyades_platform::sync::Unpoisoned;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, RwLock};
use throttle::Throttle;
pub use throttle::source;

/// The users, and the results of their attempts.
pub struct Access {
    users: RwLock<Arc<Users>>,
    /// Raised by each change of `users`, behind the change: a thread that reads a new number sees
    /// the change.
    generation: AtomicU64,
    /// Something can be refused to some client.
    is_restricted: AtomicBool,
    /// Refusals.
    pub denied: DeniedLog,
    /// Failed attempts to log in.
    pub throttle: Throttle,
}

impl Access {
    /// Access with the users of the settings.
    pub fn new(users: Users) -> Access {
        Access {
            is_restricted: AtomicBool::new(users.is_restricted()),
            users: RwLock::new(Arc::new(users)),
            generation: AtomicU64::new(1),
            denied: DeniedLog::default(),
            throttle: Throttle::default(),
        }
    }

    /// The present users.
    pub fn users(&self) -> Arc<Users> {
        self.users.read().unpoisoned().clone()
    }

    /// Changes the users: as a whole, or, after an error, not at all. Returns the users before.
    ///
    /// # Errors
    /// Errors of the change.
    pub fn change<T, E>(
        &self,
        change: impl FnOnce(&mut Users) -> Result<T, E>,
    ) -> Result<(T, Arc<Users>), E> {
        let mut users = self.users.write().unpoisoned();
        let mut next = (**users).clone();
        let done = change(&mut next)?;
        // A stricter rule is not to be passed over: a check that finds no restriction, or an old
        // number, ran before this change.
        self.is_restricted.store(next.is_restricted(), Ordering::Release);
        let before = std::mem::replace(&mut *users, Arc::new(next));
        self.generation.fetch_add(1, Ordering::Release);
        Ok((done, before))
    }

    /// Whether something can be refused. If not, no check is needed.
    #[inline]
    pub fn is_restricted(&self) -> bool {
        self.is_restricted.load(Ordering::Acquire)
    }

    /// Whether clients have to log in: the default user has a password, or is off.
    pub fn needs_login(&self) -> bool {
        self.is_restricted() && !self.users().default_user().is_open()
    }

    /// Whether the default user needs no password, even if the user is off.
    pub fn is_open(&self) -> bool {
        self.users().default_user().needs_no_password()
    }
}

/// A client's user.
#[derive(Clone)]
pub struct Login {
    user: Arc<User>,
    generation: u64,
    has_logged_in: bool,
    /// Rules do not bind the client.
    is_unbound: bool,
}

impl Login {
    /// The login of a client that has just connected.
    pub fn new(access: &Access) -> Login {
        let generation = access.generation.load(Ordering::Acquire);
        let user = access.users().default_user().clone();
        Login { has_logged_in: user.is_open(), user, generation, is_unbound: false }
    }

    /// The login of this server itself: rules do not bind the server.
    pub fn unbound(access: &Access) -> Login {
        Login { is_unbound: true, has_logged_in: true, ..Login::new(access) }
    }

    /// Logs in.
    pub fn set(&mut self, access: &Access, user: Arc<User>) {
        // The user is looked up again, in case of a change since the user was found.
        *self = Login { user, generation: 0, has_logged_in: true, is_unbound: false };
        self.refresh(access);
    }

    /// The name of the user.
    pub fn name(&self) -> &str {
        &self.user.name
    }

    /// The user with the present rules. A removed user has no rights.
    pub fn refresh(&mut self, access: &Access) -> &User {
        // The generation is read first: the users found are at least as new.
        let generation = access.generation.load(Ordering::Acquire);
        if generation != self.generation {
            let users = access.users();
            let found = users.find(&self.user.name).filter(|found| found.id == self.user.id);
            let none = || Arc::new(User::new(&self.user.name, false));
            self.user = found.cloned().unwrap_or_else(none);
            self.generation = generation;
        }
        &self.user
    }

    /// Whether the client has to log in before running a command.
    pub fn is_missing(&self, access: &Access) -> bool {
        !self.has_logged_in && access.needs_login()
    }

    /// Whether a request is allowed.
    ///
    /// # Errors
    /// The request is refused, with the reason.
    pub fn check(&mut self, access: &Access, args: &[&[u8]]) -> Result<(), Denied> {
        match access.is_restricted() && !self.is_unbound {
            true => self.refresh(access).check(args),
            false => Ok(()),
        }
    }

    /// The reason to refuse SORT with a pattern, if any: BY and GET read any keys.
    pub fn sort_refusal(&mut self, access: &Access, args: &[&[u8]]) -> Option<String> {
        let sorts = args[0].len() >= 4 && args[0][..4].eq_ignore_ascii_case(b"sort");
        if !sorts || !access.is_restricted() || self.is_unbound {
            return None;
        }
        let option = self.refresh(access).refused_sort_option(args)?;
        Some(format!("ERR {option} option of SORT denied due to insufficient ACL permissions."))
    }
}
