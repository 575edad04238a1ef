//! Ports of this machine that are free.

use hyades_cli::failure::Failure;
use std::net::{Ipv4Addr, TcpListener};

/// Below the ports that the system gives to connections: a port that is free now is taken later
/// only by a server that asks for it.
const RANGE: std::ops::Range<u16> = 20_000..32_000;

/// Different ports that are free now.
///
/// # Errors
/// There are none.
pub fn free_ports<const N: usize>() -> Result<[u16; N], Failure> {
    let mut listeners = Vec::new();
    for _ in 0..100 * N {
        let port = fastrand::u16(RANGE);
        // Kept until all are found: no port is found twice.
        listeners.extend(TcpListener::bind((Ipv4Addr::LOCALHOST, port)).ok().map(|it| (port, it)));
        if listeners.len() == N {
            return Ok(std::array::from_fn(|at| listeners[at].0));
        }
    }
    Err(Failure::Failed(format!("no {N} ports of 127.0.0.1 from {RANGE:?} are free")))
}
