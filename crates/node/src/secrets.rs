//! The keys for secrets and for the data of jobs, and the cipher: AES-256-GCM with a random nonce for each value.
//!
//! Keys come from `PUNCTUAL_SECRETS_KEY`, from `secrets.key_file`, or from a file in the directory of an embedded
//! store, which the first secret creates.

use crate::store::StorePlace;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use punctual_config::data_dir::write_new_private;
use punctual_config::exit::CliError;
use punctual_config::store_url::Password;
use punctual_config::{SecretsSettings, StoreSettings, exposure, foreign_keys};
use punctual_core::limits;
use punctual_core::ports::{CipherError, JobQuery, SealedValue, SecretCipher, Store, StoreError};
use punctual_core::sealed::key_of;
use punctual_engine::EngineConfig;
use ring::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use ring::digest::{SHA256, digest};
use ring::hkdf::{HKDF_SHA256, Prk, Salt};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The file of the keys of an embedded store.
const KEY_FILE: &str = "secrets.key";
const VARIABLE: &str = "PUNCTUAL_SECRETS_KEY";
const KEY_BYTES: usize = 32;
/// Hexadecimal digits of a key's id.
const KEY_ID_CHARS: usize = 12;
/// Separates the keys for the data of jobs from everything else that may be derived from a key.
const DATA_SALT: &[u8] = b"punctual data of jobs";

/// The keys in a variable: a flag could be seen by everybody on the machine.
#[derive(Debug, Clone, Default, clap::Args)]
pub struct SecretsKeyArg {
    /// The keys for secrets
    #[arg(long, env = VARIABLE, hide_env_values = true, hide = true, value_name = "KEYS")]
    secrets_key: Option<Password>,
}

/// The cipher of a process with these settings. Without keys it exists, and reports which setting is missing when it
/// is used; a process that encrypts payloads does not start without one.
pub fn cipher(
    store: &StoreSettings,
    settings: &SecretsSettings,
    variable: &SecretsKeyArg,
    place: &StorePlace,
) -> Result<Arc<dyn SecretCipher>, CliError> {
    let cipher = key_ring(settings, variable, place)?;
    if store.encrypt_payloads.0 && cipher.current_key().is_none() {
        let beside = match place {
            StorePlace::Sqlite(directory) => {
                format!(", or create the file {}", directory.join(KEY_FILE).display())
            }
            StorePlace::Server(_) => ", to the same keys on all servers".to_owned(),
        };
        let why = format!(
            "needs a key, and there is none: set secrets.key_file or {VARIABLE}{beside}, with 32 bytes in Base64, such as \
             from `head -c 32 /dev/urandom | base64`, and keep a copy: without the key, payloads are lost"
        );
        return Err(wrong("store.encrypt_payloads", &why));
    }
    Ok(cipher)
}

/// Refuses to encrypt payloads without a key, before anything is created. Other problems with keys are reported once the
/// directory is known to be usable.
pub fn check_encryption(
    store: &StoreSettings,
    settings: &SecretsSettings,
    variable: &SecretsKeyArg,
    place: &StorePlace,
) -> Result<(), CliError> {
    if store.encrypt_payloads.0 { cipher(store, settings, variable, place).map(drop) } else { Ok(()) }
}

fn key_ring(
    settings: &SecretsSettings,
    variable: &SecretsKeyArg,
    place: &StorePlace,
) -> Result<Arc<dyn SecretCipher>, CliError> {
    // An empty variable counts as unset.
    if let Some(keys) = variable.secrets_key.as_ref().filter(|keys| !keys.is_empty()) {
        let keys = SecretKeys::parse(keys.expose()).map_err(|why| wrong(VARIABLE, &why))?;
        return Ok(Arc::new(KeyRing::of(keys)));
    }
    if let Some(file) = &settings.key_file {
        let name = format!("secrets.key_file {}", file.display());
        let keys = read(file).map_err(|why| wrong(&name, &why))?;
        return Ok(Arc::new(KeyRing::of(keys.ok_or_else(|| wrong(&name, "there is no such file"))?)));
    }
    let StorePlace::Sqlite(directory) = place else {
        return Ok(Arc::new(KeyRing::of(SecretKeys::default())));
    };
    let file = directory.join(KEY_FILE);
    let keys = read(&file).map_err(|why| wrong(&file.display().to_string(), &why))?;
    Ok(Arc::new(KeyRing { keys: Mutex::new(keys.unwrap_or_default()), created_in: Some(file) }))
}

fn wrong(what: &str, why: &str) -> CliError {
    CliError::cannot_start(format!("{what}: {why}"))
}

/// The keys in a file; `None` if it does not exist.
fn read(file: &Path) -> Result<Option<SecretKeys>, String> {
    let text = match std::fs::read_to_string(file) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        text => text.map_err(|error| error.to_string())?,
    };
    if let Some(why) = foreign_keys(file).map_err(|error| error.to_string())? {
        return Err(format!(
            "{why}: make it your own with `chown` and `chmod 600`, if you trust the keys in it"
        ));
    }
    if let Ok(Some(warning)) = exposure(file) {
        tracing::warn!("{warning}");
    }
    SecretKeys::parse(&text).map(Some)
}

/// Warns of secrets that this process cannot decrypt, and of a shared store whose processes have different keys.
pub async fn warn_of_missing_keys(config: &EngineConfig, store: &dyn Store) {
    let Some(cipher) = &config.secret_cipher else { return };
    let (mut missing, mut after) = (BTreeMap::<String, usize>::new(), None::<String>);
    loop {
        let page = match store.secrets(after.as_deref(), limits::PAGE_ITEMS_MAX).await {
            Ok(page) => page,
            Err(error) => {
                tracing::warn!(%error, "cannot check whether this server has the keys of all secrets");
                return;
            }
        };
        let unreadable = page.items.into_iter().filter(|secret| !cipher.has_key(&secret.sealed.key_id));
        unreadable.for_each(|secret| *missing.entry(secret.sealed.key_id).or_default() += 1);
        after = page.next;
        if after.is_none() {
            break;
        }
    }
    for (key_id, count) in missing {
        tracing::error!(
            key_id,
            secrets = count,
            "this server does not have the key of some secrets: jobs that use them fail here; {}",
            cipher.key_place()
        );
    }
    warn_of_unreadable_data(&**cipher, store).await;
}

/// The same for the data of jobs. Only the latest jobs and executions are read: they are under the keys in use, and a
/// lost key of older rows is reported when these are read.
async fn warn_of_unreadable_data(cipher: &dyn SecretCipher, store: &dyn Store) {
    let keys = match keys_in_use(store).await {
        Ok(keys) => keys,
        Err(error) => {
            tracing::warn!(%error, "cannot check whether this server has the keys of payloads and results");
            return;
        }
    };
    for key_id in keys.into_iter().filter(|key_id| !cipher.has_key(key_id)) {
        tracing::error!(
            key_id,
            "this server does not have the key of some payloads or results: such jobs cannot be read, and fail here; {}",
            cipher.key_place()
        );
    }
}

/// The keys of the latest payloads and results.
async fn keys_in_use(store: &dyn Store) -> Result<BTreeSet<String>, StoreError> {
    let limit = limits::PAGE_ITEMS_DEFAULT;
    let jobs = store.jobs(JobQuery { limit, ..JobQuery::default() }).await?.items;
    let place = store.history_span().await?.ends_at.saturating_sub(limit as u64);
    let finished = store.finished_after(place, limit).await?.items;
    let payloads = jobs.iter().map(|view| view.job.spec.payload.as_str());
    let results = finished.iter().filter_map(|event| event.finished.result.as_deref());
    Ok(payloads.chain(results).filter_map(key_of).map(str::to_owned).collect())
}

/// Keys by id. The current one encrypts.
#[derive(Default)]
struct SecretKeys {
    current: Option<String>,
    by_id: BTreeMap<String, SecretKey>,
}

/// A key, and the source of the keys that are derived from it for the data of jobs.
#[derive(Clone)]
struct SecretKey {
    key: LessSafeKey,
    source: Prk,
}

impl SecretKey {
    fn new(bytes: &[u8; KEY_BYTES]) -> Option<Self> {
        let key = LessSafeKey::new(UnboundKey::new(&AES_256_GCM, bytes).ok()?);
        Some(SecretKey { key, source: Salt::new(HKDF_SHA256, DATA_SALT).extract(bytes) })
    }

    /// The key for the data that is bound to these bytes.
    fn derived(&self, bound_to: &[u8]) -> Option<LessSafeKey> {
        let info = [bound_to];
        let derived = self.source.expand(&info, &AES_256_GCM).ok()?;
        Some(LessSafeKey::new(UnboundKey::from(derived)))
    }
}

impl SecretKeys {
    /// Reads keys, separated by white space or commas, the current one first. Errors do not repeat them.
    fn parse(text: &str) -> Result<SecretKeys, String> {
        let is_separator = |character: char| character.is_whitespace() || character == ',';
        let mut keys = SecretKeys::default();
        let texts = text.split(is_separator).filter(|key| !key.is_empty());
        for (number, text) in (1..).zip(texts) {
            if number > limits::SECRET_KEYS_MAX {
                return Err(format!("has more than {} keys: remove old ones", limits::SECRET_KEYS_MAX));
            }
            let problem = "is not a key: it must have 32 bytes in Base64 or hexadecimal, such as from `head -c 32 /dev/urandom | base64`";
            let bytes = decoded(text).ok_or_else(|| format!("key {number} {problem}"))?;
            keys.add(&bytes).ok_or_else(|| format!("key {number} {problem}"))?;
        }
        if keys.current.is_none() { Err("has no key".to_owned()) } else { Ok(keys) }
    }

    fn add(&mut self, bytes: &[u8; KEY_BYTES]) -> Option<()> {
        let key = SecretKey::new(bytes)?;
        let id = key_id(bytes);
        self.current.get_or_insert_with(|| id.clone());
        self.by_id.insert(id, key);
        Some(())
    }
}

fn decoded(text: &str) -> Option<[u8; KEY_BYTES]> {
    if text.len() == KEY_BYTES * 2 {
        let digits = |place: usize| u8::from_str_radix(text.get(place..place + 2)?, 16).ok();
        let bytes: Option<Vec<u8>> = (0..text.len()).step_by(2).map(digits).collect();
        return bytes?.try_into().ok();
    }
    BASE64.decode(text).ok()?.try_into().ok()
}

/// Names a key without telling anything about it.
fn key_id(key: &[u8; KEY_BYTES]) -> String {
    let named = [b"punctual key id ".as_slice(), key].concat();
    let hash = digest(&SHA256, &named);
    hash.as_ref().iter().take(KEY_ID_CHARS / 2).map(|byte| format!("{byte:02x}")).collect()
}

/// The keys of this process.
struct KeyRing {
    keys: Mutex<SecretKeys>,
    /// Where the first secret creates a key.
    created_in: Option<PathBuf>,
}

/// Without the keys.
impl fmt::Debug for KeyRing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeyRing").field("ids", &self.lock().by_id.keys().collect::<Vec<_>>()).finish()
    }
}

impl KeyRing {
    fn of(keys: SecretKeys) -> Self {
        KeyRing { keys: Mutex::new(keys), created_in: None }
    }

    fn lock(&self) -> MutexGuard<'_, SecretKeys> {
        self.keys.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The keys, with a current one.
    fn ready(&self) -> Result<MutexGuard<'_, SecretKeys>, CipherError> {
        let mut keys = self.lock();
        if keys.current.is_none() {
            let file = self.created_in.as_ref().ok_or(CipherError::NoKey)?;
            let key: [u8; KEY_BYTES] = random()?;
            write_new_private(file, &BASE64.encode(key))
                .map_err(|error| CipherError::Unavailable(format!("{error:#}")))?;
            tracing::info!(file = %file.display(), "created a key for secrets: back it up, apart from the database");
            keys.add(&key).ok_or_else(|| CipherError::Unavailable("the new key is invalid".to_owned()))?;
        }
        Ok(keys)
    }

    /// The current key with its id, without holding the lock while it is used.
    fn current(&self) -> Result<(String, SecretKey), CipherError> {
        let keys = self.ready()?;
        let current = keys.current.as_ref().and_then(|id| Some((id.clone(), keys.by_id.get(id)?.clone())));
        current.ok_or(CipherError::NoKey)
    }

    /// The key that decrypts a value.
    fn key_of(&self, value: &SealedValue) -> Result<SecretKey, CipherError> {
        let keys = self.lock();
        keys.by_id.get(&value.key_id).cloned().ok_or_else(|| {
            let known: Vec<String> = keys.by_id.keys().cloned().collect();
            CipherError::UnknownKey { key_id: value.key_id.clone(), known, place: self.key_place() }
        })
    }
}

fn random<const N: usize>() -> Result<[u8; N], CipherError> {
    let mut bytes = [0; N];
    let failed = |error| CipherError::Unavailable(format!("cannot read randomness: {error}"));
    getrandom::fill(&mut bytes).map_err(failed)?;
    Ok(bytes)
}

impl SecretCipher for KeyRing {
    fn current_key(&self) -> Option<String> {
        self.lock().current.clone()
    }

    fn has_key(&self, id: &str) -> bool {
        self.lock().by_id.contains_key(id)
    }

    fn key_place(&self) -> String {
        match &self.created_in {
            Some(file) => format!(
                "put the file {} with that key back, such as from a copy, or name the file that has it with \
                 --secrets-key-file (secrets.key_file)",
                file.display()
            ),
            None => "add that key to secrets.key_file or PUNCTUAL_SECRETS_KEY, the same keys on all servers"
                .to_owned(),
        }
    }

    fn seal(&self, value: &str, bound_to: &[u8]) -> Result<SealedValue, CipherError> {
        let (key_id, keys) = self.current()?;
        sealed(key_id, &keys.key, value, bound_to)
    }

    fn open(&self, value: &SealedValue, bound_to: &[u8]) -> Result<String, CipherError> {
        opened(&self.key_of(value)?.key, value, bound_to)
    }

    fn seal_data(&self, text: &str, bound_to: &[u8]) -> Result<SealedValue, CipherError> {
        let (key_id, keys) = self.current()?;
        let key = keys.derived(bound_to).ok_or_else(cannot_encrypt)?;
        sealed(key_id, &key, text, bound_to)
    }

    fn open_data(&self, value: &SealedValue, bound_to: &[u8]) -> Result<String, CipherError> {
        let key = self.key_of(value)?.derived(bound_to).ok_or(CipherError::Mismatch)?;
        opened(&key, value, bound_to)
    }
}

fn cannot_encrypt() -> CipherError {
    CipherError::Unavailable("the value cannot be encrypted".to_owned())
}

fn sealed(
    key_id: String,
    key: &LessSafeKey,
    value: &str,
    bound_to: &[u8],
) -> Result<SealedValue, CipherError> {
    let nonce: [u8; NONCE_LEN] = random()?;
    let mut sealed = value.as_bytes().to_vec();
    let nonce_of_key = Nonce::assume_unique_for_key(nonce);
    key.seal_in_place_append_tag(nonce_of_key, Aad::from(bound_to), &mut sealed)
        .map_err(|_| cannot_encrypt())?;
    Ok(SealedValue { key_id, text: BASE64.encode([nonce.as_slice(), &sealed].concat()) })
}

fn opened(key: &LessSafeKey, sealed: &SealedValue, bound_to: &[u8]) -> Result<String, CipherError> {
    let mut bytes = BASE64.decode(&sealed.text).map_err(|_| CipherError::Mismatch)?;
    let (nonce, value) = bytes.split_at_mut_checked(NONCE_LEN).ok_or(CipherError::Mismatch)?;
    let nonce = Nonce::try_assume_unique_for_key(nonce).map_err(|_| CipherError::Mismatch)?;
    let value = key.open_in_place(nonce, Aad::from(bound_to), value).map_err(|_| CipherError::Mismatch)?;
    String::from_utf8(value.to_vec()).map_err(|_| CipherError::Mismatch)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    const ONE: &str = "AQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQE=";
    const TWO: &str = "0202020202020202020202020202020202020202020202020202020202020202";

    fn ring(text: &str) -> KeyRing {
        KeyRing::of(SecretKeys::parse(text).unwrap())
    }

    #[test]
    fn a_value_is_read_back_only_with_its_key_and_what_it_is_bound_to() {
        let ring = ring(ONE);
        let sealed = ring.seal("hunter2 ü", b"db 1").unwrap();
        assert_eq!(ring.open(&sealed, b"db 1"), Ok("hunter2 ü".to_owned()));
        assert_eq!(ring.open(&sealed, b"db 2"), Err(CipherError::Mismatch));
        assert_ne!(ring.seal("hunter2 ü", b"db 1").unwrap().text, sealed.text, "each has its own nonce");
        let other = self::ring(TWO);
        let error = other.open(&sealed, b"db 1").unwrap_err();
        assert!(matches!(&error, CipherError::UnknownKey { key_id, .. } if *key_id == sealed.key_id));
        assert!(error.to_string().contains("secrets.key_file"), "{error}");
        for text in ["", "AAAA", "not base64!"] {
            let damaged = SealedValue { text: text.to_owned(), ..sealed.clone() };
            assert_eq!(ring.open(&damaged, b"db 1"), Err(CipherError::Mismatch), "{text}");
        }
    }

    #[test]
    fn keys_that_others_can_write_are_refused() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), ONE).unwrap();
        assert!(read(file.path()).is_ok_and(|keys| keys.is_some()));
        std::fs::set_permissions(file.path(), std::fs::Permissions::from_mode(0o606)).unwrap();
        let refused = read(file.path()).err().unwrap();
        assert!(refused.contains("can write to it (mode 0606)"), "{refused}");
    }

    #[test]
    fn data_of_jobs_has_a_key_of_its_own_for_each_row() {
        let ring = ring(ONE);
        let sealed = ring.seal_data("{}", b"job 1").unwrap();
        assert_eq!(ring.open_data(&sealed, b"job 1"), Ok("{}".to_owned()));
        assert_eq!(ring.open_data(&sealed, b"job 2"), Err(CipherError::Mismatch));
        assert_eq!(
            ring.open(&sealed, b"job 1"),
            Err(CipherError::Mismatch),
            "the key itself does not decrypt it"
        );
        assert_ne!(ring.seal_data("{}", b"job 1").unwrap().text, sealed.text, "each has its own nonce");
        let file = PathBuf::from("data/secrets.key");
        let without = KeyRing { keys: Mutex::new(SecretKeys::default()), created_in: Some(file) };
        let error = without.open_data(&sealed, b"job 1").unwrap_err().to_string();
        assert!(error.contains("or name the file that has it with --secrets-key-file"), "{error}");
        let error = self::ring(TWO).open_data(&sealed, b"job 1").unwrap_err();
        assert!(matches!(&error, CipherError::UnknownKey { key_id, .. } if *key_id == sealed.key_id));
    }

    #[test]
    fn the_first_key_encrypts_and_all_of_them_decrypt() {
        let old = ring(ONE).seal("v", b"x").unwrap();
        let both = ring(&format!("{TWO}\n{ONE}\n"));
        assert_eq!(both.open(&old, b"x"), Ok("v".to_owned()));
        let new = both.seal("v", b"x").unwrap();
        assert_eq!(Some(new.key_id.clone()), both.current_key());
        assert_eq!(Some(new.key_id), ring(TWO).current_key());
        assert!(both.has_key(&old.key_id) && !ring(TWO).has_key(&old.key_id));
    }

    #[test]
    fn wrong_keys_are_counted_and_not_repeated() {
        let problem = |text: &str| SecretKeys::parse(text).map(drop).unwrap_err();
        assert_eq!(problem(" \n"), "has no key");
        let second = problem(&format!("{ONE},tooshort"));
        assert!(second.starts_with("key 2 is not a key: it must have 32 bytes in Base64"), "{second}");
        assert!(!second.contains("tooshort"));
        assert!(problem(&TWO.replace('2', "g")).starts_with("key 1 "));
        let many: Vec<String> = (0..=limits::SECRET_KEYS_MAX).map(|n| BASE64.encode([n as u8; 32])).collect();
        assert_eq!(problem(&many.join(" ")), "has more than 10 keys: remove old ones");
        assert!(!format!("{:?}", ring(ONE)).contains("AQEB"));
    }

    #[test]
    fn the_key_of_an_embedded_store_is_created_with_the_first_secret_and_kept() {
        let directory = tempfile::tempdir().unwrap();
        let place = StorePlace::Sqlite(directory.path().to_owned());
        let settings = SecretsSettings { key_file: None };
        let open = || key_ring(&settings, &SecretsKeyArg::default(), &place).unwrap();
        let (first, file) = (open(), directory.path().join(KEY_FILE));
        assert_eq!(first.current_key(), None);
        assert!(!file.exists());
        let sealed = first.seal("v", b"x").unwrap();
        assert_eq!(file.metadata().unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(open().open(&sealed, b"x"), Ok("v".to_owned()));
        std::fs::remove_file(&file).unwrap();
        let error = open().open(&sealed, b"x").unwrap_err().to_string();
        assert!(error.contains(&sealed.key_id) && error.contains(file.to_str().unwrap()), "{error}");
    }

    #[test]
    fn without_a_file_the_setting_is_named() {
        let ring = KeyRing::of(SecretKeys::default());
        let error = ring.seal("v", b"x").unwrap_err().to_string();
        assert!(error.contains("secrets.key_file or PUNCTUAL_SECRETS_KEY"), "{error}");
        let settings = SecretsSettings { key_file: Some(PathBuf::from("/nowhere/keys")) };
        let place = StorePlace::Sqlite(PathBuf::from("/nowhere"));
        let error = key_ring(&settings, &SecretsKeyArg::default(), &place).unwrap_err();
        assert_eq!(error.message, "secrets.key_file /nowhere/keys: there is no such file");
    }
}
