//! Without the feature `tls`: no connection is encrypted.

use crate::config::PingTls;
use crate::config::TlsSettings;
use std::io::{Read, Write};
use std::time::Instant;

pub use NoClient as TlsClient;
pub use NoEncryption as Encryption;
pub use NoStream as TlsStream;

/// How connections are encrypted: not at all.
pub enum NoEncryption {}

/// The encryption of a connection: there is none.
pub enum NoStream {}

/// The encryption of a connection to a server: there is none.
pub enum NoClient {}

impl NoEncryption {
    /// Refuses the settings.
    pub fn new(settings: &TlsSettings) -> Result<NoEncryption, String> {
        let port = settings.port;
        Err(format!("tls-port cannot be {port}: this program was built without its feature tls"))
    }

    pub fn stream(&self) -> Result<NoStream, String> {
        match *self {}
    }
}

impl NoClient {
    /// Refuses to ask.
    pub fn new(_: &str, _: &PingTls) -> Result<NoClient, String> {
        Err("--tls is not possible: this program was built without its feature tls".to_string())
    }

    pub fn exchange(
        &mut self,
        _: &mut (impl Read + Write),
        _: &[u8],
        _: &mut [u8],
    ) -> std::io::Result<()> {
        match *self {}
    }
}

impl NoStream {
    pub fn receive(&mut self, _: &[u8], _: impl FnMut(&[u8])) -> Result<(), String> {
        match *self {}
    }

    pub fn seal(&mut self, _: &[u8]) -> usize {
        match *self {}
    }

    pub fn output(&self) -> &[u8] {
        match *self {}
    }

    pub fn sent(&mut self, _: usize) {
        match *self {}
    }

    pub fn close(&mut self) {
        match *self {}
    }

    pub fn has_ended(&self) -> bool {
        match *self {}
    }

    pub fn is_closed(&self) -> bool {
        match *self {}
    }

    pub fn is_handshaking(&self) -> bool {
        match *self {}
    }

    pub fn deadline(&self) -> Option<Instant> {
        match *self {}
    }
}
