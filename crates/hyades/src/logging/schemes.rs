//! Protocols and concurrency controls of other crates: their properties, and the registry that
//! finds them by the names in manifests.

use super::StampFormat;
use hyades_platform::sync::Unpoisoned;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::RwLock;

/// A logging protocol of another crate, as settings name the protocol.
pub struct PluggedProtocol {
    /// As in manifests.
    pub name: &'static str,
    /// The format of the stamps in records, for the value of the setting [`hyades_wal::MARKS`] of
    /// an incarnation.
    pub stamps: fn(marks: Option<&str>) -> StampFormat,
    /// Whether procedures may be logged as commands.
    pub takes_commands: bool,
    /// Whether writing closures are logged, and procedures may be logged as data.
    pub takes_data: bool,
    pub has_one_stream: bool,
    /// The concurrency control chosen where no setting names one.
    pub control: Option<&'static PluggedControl>,
    /// Registers everything that the crate of the protocol has.
    pub register: fn(),
}

/// A concurrency control of another crate, as settings name the control.
pub struct PluggedControl {
    /// As in manifests.
    pub name: &'static str,
    /// Whether the transactions of a partition run one after the other.
    pub has_partitions: bool,
    /// Registers everything that the crate of the control has.
    pub register: fn(),
}

/// The registered ones, in the order of registration.
pub(crate) struct SchemeRegistry<T: 'static>(RwLock<Vec<&'static T>>);

impl<T> SchemeRegistry<T> {
    pub const fn new() -> Self {
        SchemeRegistry(RwLock::new(Vec::new()))
    }

    /// Adds what is not yet registered.
    pub fn add(&self, more: &[&'static T]) {
        let mut known = self.0.write().unpoisoned();
        for row in more {
            if !known.iter().any(|other| std::ptr::eq(*other, *row)) {
                known.push(row);
            }
        }
    }

    pub fn all(&self) -> Vec<&'static T> {
        self.0.read().unpoisoned().clone()
    }

    pub fn find(&self, wanted: impl Fn(&T) -> bool) -> Option<&'static T> {
        let known = self.0.read().unpoisoned();
        known.iter().copied().find(|row| wanted(row))
    }
}

pub(crate) static PROTOCOLS: SchemeRegistry<PluggedProtocol> = SchemeRegistry::new();
pub(crate) static CONTROLS: SchemeRegistry<PluggedControl> = SchemeRegistry::new();

/// A row stands for its name: the name is shown, compared and hashed.
macro_rules! is_its_name {
    ($row:ty) => {
        impl fmt::Debug for $row {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(self.name)
            }
        }

        impl PartialEq for $row {
            fn eq(&self, other: &Self) -> bool {
                self.name == other.name
            }
        }

        impl Eq for $row {}

        impl Hash for $row {
            fn hash<H: Hasher>(&self, state: &mut H) {
                self.name.hash(state);
            }
        }
    };
}

is_its_name!(PluggedProtocol);
is_its_name!(PluggedControl);
