//! The files for TLS, and the errors for wrong files.

use crate::config::{ClientCertificates, TlsSettings};
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::danger::ClientCertVerifier;
use rustls::server::{ServerConfig, WebPkiClientVerifier};
use rustls::{Error, RootCertStore, version};
use std::path::Path;
use std::sync::Arc;

/// The mark of a key with a passphrase.
const ENCRYPTED: &[u8] = b"ENCRYPTED";

/// Reads a file named by a setting.
fn content(setting: &str, file: &Path) -> Result<Vec<u8>, String> {
    if file.as_os_str().is_empty() {
        return Err(format!("tls-port needs {setting}: name a file in PEM format"));
    }
    let cannot = |error| format!("cannot read {setting} {}: {error}", file.display());
    std::fs::read(file).map_err(cannot)
}

/// The certificates of a file.
pub fn certificates(setting: &str, file: &Path) -> Result<Vec<CertificateDer<'static>>, String> {
    let text = content(setting, file)?;
    let wrong = |what: &str| {
        format!(
            "{setting} {} {what}: it has to hold certificates in PEM format, each from a line \
             -----BEGIN CERTIFICATE----- on",
            file.display()
        )
    };
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&text).collect();
    let found = found.map_err(|error| wrong(&format!("cannot be understood ({error})")))?;
    if found.is_empty() {
        return Err(wrong("has no certificate in it"));
    }
    Ok(found)
}

/// The private key of a file.
pub fn private_key(setting: &str, file: &Path) -> Result<PrivateKeyDer<'static>, String> {
    let text = content(setting, file)?;
    let name = file.display();
    if memchr::memmem::find(&text, ENCRYPTED).is_some() {
        return Err(format!(
            "{setting} {name} has a passphrase, which is not asked for: write the key without one \
             (openssl pkey -in {name} -out NEW), in a file that only this program may read"
        ));
    }
    PrivateKeyDer::from_pem_slice(&text).map_err(|error| {
        format!(
            "{setting} {name} has no private key in it ({error}): it has to hold one in PEM \
             format, from a line -----BEGIN PRIVATE KEY----- on"
        )
    })
}

/// The verifier of the certificates of clients.
fn verifier(settings: &TlsSettings) -> Result<Option<Arc<dyn ClientCertVerifier>>, String> {
    if settings.clients == ClientCertificates::NotAsked {
        return Ok(None);
    }
    let Some(file) = &settings.authorities else {
        return Err("clients have to show certificates, and tls-ca-cert-file does not say which \
                    authority signs them: name its file, or set tls-auth-clients to no"
            .to_string());
    };
    let wrong = |error: &dyn std::fmt::Display| {
        format!("tls-ca-cert-file {} cannot be used: {error}", file.display())
    };
    let mut roots = RootCertStore::empty();
    for certificate in certificates("tls-ca-cert-file", file)? {
        roots.add(certificate).map_err(|error| wrong(&error))?;
    }
    let provider = Arc::new(ring::default_provider());
    let builder = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
    let builder = match settings.clients {
        ClientCertificates::Optional => builder.allow_unauthenticated(),
        _ => builder,
    };
    builder.build().map(Some).map_err(|error| wrong(&error))
}

/// The configuration for the settings.
pub fn configuration(settings: &TlsSettings) -> Result<ServerConfig, String> {
    let chain = certificates("tls-cert-file", &settings.certificate)?;
    let key = private_key("tls-key-file", &settings.key)?;
    let mut versions = Vec::new();
    if settings.version_1_2 {
        versions.push(&version::TLS12);
    }
    if settings.version_1_3 {
        versions.push(&version::TLS13);
    }
    let builder = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_protocol_versions(&versions)
        .map_err(|error| format!("tls-protocols is not possible: {error}"))?;
    let builder = match verifier(settings)? {
        None => builder.with_no_client_auth(),
        Some(verifier) => builder.with_client_cert_verifier(verifier),
    };
    let (certificate, key_name) = (settings.certificate.display(), settings.key.display());
    builder.with_single_cert(chain, key).map_err(|error| match error {
        Error::InconsistentKeys(_) => format!(
            "tls-key-file {key_name} is not the key of the first certificate in tls-cert-file \
             {certificate}: name the two that were made together; the server's own certificate \
             comes first in its file"
        ),
        Error::InvalidCertificate(_) => {
            format!("the first certificate in tls-cert-file {certificate} is invalid: {error}")
        }
        _ => format!(
            "the key in tls-key-file {key_name} cannot be used ({error}): make an ECDSA key \
             (P-256, P-384), an Ed25519 key, or an RSA key of 2048 to 8192 bits"
        ),
    })
}
