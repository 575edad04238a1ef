//! NATS servers as child processes.

use hyades_cli::failure::{Failure, usage};
use std::ffi::OsString;
use std::fs::File;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// The oldest version that keeps the conditions of appends over a change of leaders.
const LEAST: (u32, u32) = (2, 15);

const HOW_TO_GET: &str = "this demo starts three NATS servers. Take an archive of \
    https://github.com/nats-io/nats-server/releases, or run\n  \
    go install github.com/nats-io/nats-server/v2@v2.15.3\n\
    then put nats-server into the PATH, or name it by --nats-server FILE or HYADES_NATS_SERVER";

/// Finds the program `nats-server`: as given, by the environment, or in the path.
///
/// # Errors
/// There is none, or it is too old.
pub fn find(given: Option<&Path>) -> Result<PathBuf, Failure> {
    let named = ["HYADES_NATS_SERVER", "NATS_SERVER"].into_iter().find_map(std::env::var_os);
    let named = given.map(PathBuf::from).or(named.filter(|name| !name.is_empty()).map(Into::into));
    let program = match named {
        Some(program) => program,
        None => match in_path(std::env::var_os("PATH").unwrap_or_default()) {
            Some(program) => program,
            None => return usage(format!("nats-server was not found: {HOW_TO_GET}")),
        },
    };
    let output = Command::new(&program).arg("--version").output();
    let output = output.or_else(|error| {
        usage(format!("{} does not run: {error}; {HOW_TO_GET}", program.display()))
    })?;
    let text = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    match version(&text) {
        Some(found) if found >= LEAST => Ok(program),
        _ => usage(format!(
            "{} says {text:?}, and version 2.15 or later is needed; {HOW_TO_GET}",
            program.display()
        )),
    }
}

fn in_path(path: OsString) -> Option<PathBuf> {
    std::env::split_paths(&path).map(|dir| dir.join("nats-server")).find(|file| file.is_file())
}

/// Of `nats-server: v2.15.1`.
fn version(text: &str) -> Option<(u32, u32)> {
    let mut numbers = text.rsplit_once('v')?.1.split('.').map(str::parse);
    Some((numbers.next()?.ok()?, numbers.next()?.ok()?))
}

/// A cluster of three servers, which are killed when the value is dropped.
pub struct NatsCluster {
    program: PathBuf,
    dir: PathBuf,
    /// By server: for clients, for the other servers, for monitoring.
    ports: [[u16; 3]; 3],
    children: [Option<Child>; 3],
}

impl NatsCluster {
    /// Prepares three servers in a directory that is there, with nine ports.
    ///
    /// # Errors
    /// A file could not be written.
    pub fn new(program: PathBuf, dir: &Path, ports: &[u16]) -> Result<NatsCluster, Failure> {
        let port = |server: usize, kind: usize| ports[3 * server + kind];
        let ports = std::array::from_fn(|server| std::array::from_fn(|kind| port(server, kind)));
        let cluster =
            NatsCluster { program, dir: dir.to_owned(), ports, children: Default::default() };
        for server in 0..3 {
            let written = std::fs::write(cluster.file(server, "conf"), cluster.config(server));
            written.map_err(Failure::doing("cannot write the configuration of a NATS server"))?;
        }
        Ok(cluster)
    }

    fn file(&self, server: usize, kind: &str) -> PathBuf {
        self.dir.join(format!("nats{server}.{kind}"))
    }

    fn config(&self, server: usize) -> String {
        let [clients, routes, monitoring] = self.ports[server];
        let all = self.ports.map(|[_, port, _]| format!("nats://127.0.0.1:{port}")).join(", ");
        let store = self.file(server, "store");
        format!(
            "server_name: nats{server}\nlisten: 127.0.0.1:{clients}\nhttp: 127.0.0.1:{monitoring}\n\
             max_payload: 8MB\njetstream {{ store_dir: {store:?}, sync_interval: always }}\n\
             cluster {{ name: demo, listen: 127.0.0.1:{routes}, routes: [{all}] }}\n"
        )
    }

    /// The servers, for an address.
    pub fn servers(&self) -> String {
        self.ports.map(|[port, ..]| format!("127.0.0.1:{port}")).join(",")
    }

    /// Starts a server.
    ///
    /// # Errors
    /// The process could not be started.
    pub fn start(&mut self, server: usize) -> Result<(), Failure> {
        let log = File::options().create(true).append(true).open(self.file(server, "log"));
        let started = log.and_then(|log| {
            let mut command = Command::new(&self.program);
            command.arg("-c").arg(self.file(server, "conf"));
            // Ctrl-C at the terminal is for the demo alone, which ends its children.
            command.process_group(0).stdin(Stdio::null());
            command.stdout(log.try_clone()?).stderr(log).spawn()
        });
        let child = started.map_err(Failure::doing("cannot start a NATS server"))?;
        self.children[server] = Some(child);
        Ok(())
    }

    /// Kills a server.
    pub fn kill(&mut self, server: usize) {
        if let Some(mut child) = self.children[server].take() {
            // It may have ended by itself.
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    /// Whether all servers take part in the cluster.
    pub fn is_ready(&self) -> bool {
        self.ports.iter().all(|[.., port]| is_healthy(*port).unwrap_or(false))
    }

    /// Whether a server that was started has ended by itself.
    pub fn has_ended(&mut self) -> bool {
        let has_ended = |child: &mut Child| child.try_wait().is_ok_and(|status| status.is_some());
        self.children.iter_mut().flatten().any(has_ended)
    }
}

impl Drop for NatsCluster {
    fn drop(&mut self) {
        (0..3).for_each(|server| self.kill(server));
    }
}

fn is_healthy(port: u16) -> std::io::Result<bool> {
    let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
    stream.set_read_timeout(Some(Duration::from_secs(2)))?;
    stream.write_all(b"GET /healthz HTTP/1.0\r\n\r\n")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer.contains("\"status\":\"ok\""))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read() {
        assert_eq!(version("nats-server: v2.15.1"), Some((2, 15)));
        assert_eq!(version("nats-server: v2.16.0-dev"), Some((2, 16)));
        assert_eq!(version("something"), None);
        assert!(version("nats-server: v2.9.10").unwrap() < LEAST);
    }
}
