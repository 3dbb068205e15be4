//! Files of repositories on the Hugging Face hub, through the cache that Python's libraries share.

use crate::error::Error;
use crate::safetensors::shards_of;
use crate::weights::Weights;
use hf_hub::api::Progress;
use hf_hub::api::sync::{Api, ApiBuilder, ApiError, ApiRepo, Metadata};
use hf_hub::{Cache, Repo, RepoType};
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::time::Duration;

/// The longest time for which the hub may send nothing.
const PATIENCE: Duration = Duration::from_secs(60);

/// The source and the cache of files of the hub: a folder, an address, a token, a revision.
///
/// [`Hub::new`] reads them as Python's `huggingface_hub` does. A file in the cache is used without a request, so that it loads offline too.
/// A branch such as `main` may have moved since; a commit as the revision never does.
///
/// ```no_run
/// use gpumem_weights::{Hub, Weights};
///
/// # fn main() -> Result<(), gpumem_weights::Error> {
/// let weights = Weights::from_hub("timm/resnet18.tv_in1k", "model.safetensors")?;
/// let pinned = Hub::new().revision("607a30d783dfa663caf39e06633721c8d4cfcd7e").weights("openai-community/gpt2", "model.safetensors")?;
/// # let _ = (weights, pinned);
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Hub {
    endpoint: String,
    cache: Option<PathBuf>,
    token: Option<String>,
    revision: String,
    is_offline: bool,
    patience: Duration,
}

impl Default for Hub {
    fn default() -> Hub {
        Hub::new()
    }
}

/// Prints all fields except the token.
impl fmt::Debug for Hub {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hub")
            .field("endpoint", &self.endpoint)
            .field("cache", &self.cache)
            .field("revision", &self.revision)
            .field("is_offline", &self.is_offline)
            .finish_non_exhaustive()
    }
}

impl Weights {
    /// Opens a file of a repository on the Hugging Face hub, at its branch `main`: see [`Hub`] for other revisions and
    /// addresses.
    ///
    /// # Errors
    /// As for [`Hub::weights`].
    pub fn from_hub(repo: &str, file: &str) -> Result<Weights, Error> {
        Hub::new().weights(repo, file)
    }
}

impl Hub {
    /// Returns the hub as environment and home folder describe it, at the revision `main`.
    ///
    /// The cache is `HF_HUB_CACHE`, or `hub` in `HF_HOME`, which is `~/.cache/huggingface` unless it is set. The token is `HF_TOKEN`, or
    /// the file `HF_TOKEN_PATH`, or `token` in `HF_HOME`, as `hf auth login` writes it. `HF_ENDPOINT` is another address than
    /// `https://huggingface.co`, and `HF_HUB_OFFLINE=1` makes no requests.
    pub fn new() -> Hub {
        Hub::of(&|name| std::env::var(name).ok(), std::env::home_dir())
    }

    /// Returns the hub that these variables and this home folder describe.
    fn of(variable: &dyn Fn(&str) -> Option<String>, home: Option<PathBuf>) -> Hub {
        let set = |name: &str| variable(name).filter(|value| !value.trim().is_empty());
        let path = |name: &str| set(name).map(PathBuf::from);
        let caches = path("XDG_CACHE_HOME").or_else(|| home.map(|home| home.join(".cache")));
        let own = path("HF_HOME").or_else(|| caches.map(|caches| caches.join("huggingface")));
        let cache = path("HF_HUB_CACHE").or_else(|| path("HUGGINGFACE_HUB_CACHE"));
        let written = path("HF_TOKEN_PATH").or_else(|| own.as_ref().map(|own| own.join("token")));
        let written = || std::fs::read_to_string(written?).ok();
        let token = set("HF_TOKEN").or_else(|| set("HUGGING_FACE_HUB_TOKEN")).or_else(written);
        let is_true = |value: String| ["1", "ON", "YES", "TRUE"].contains(&value.to_uppercase().as_str());
        Hub {
            endpoint: set("HF_ENDPOINT").unwrap_or_else(|| "https://huggingface.co".into()),
            cache: cache.or_else(|| own.map(|own| own.join("hub"))),
            token: token.map(|token| token.trim().to_string()).filter(|token| !token.is_empty()),
            revision: "main".into(),
            is_offline: set("HF_HUB_OFFLINE").is_some_and(is_true),
            patience: PATIENCE,
        }
    }

    /// Takes another address, such as that of a mirror: `http://` or `https://` and a host.
    #[must_use]
    pub fn endpoint(mut self, url: &str) -> Hub {
        self.endpoint = url.into();
        self
    }

    /// Keeps files in another folder.
    #[must_use]
    pub fn cache(mut self, folder: impl AsRef<Path>) -> Hub {
        self.cache = Some(folder.as_ref().into());
        self
    }

    /// Takes another token, or none.
    #[must_use]
    pub fn token(mut self, token: Option<&str>) -> Hub {
        self.token = token.map(String::from);
        self
    }

    /// Takes another revision than `main`: a branch, a tag or a commit.
    #[must_use]
    pub fn revision(mut self, revision: &str) -> Hub {
        self.revision = revision.into();
        self
    }

    /// Makes no requests, and uses only files in the cache.
    #[must_use]
    pub fn offline(mut self, is_offline: bool) -> Hub {
        self.is_offline = is_offline;
        self
    }

    /// Gives up after the hub has sent nothing for so long; the default is 60 seconds.
    #[must_use]
    pub fn timeout(mut self, patience: Duration) -> Hub {
        self.patience = patience;
        self
    }

    /// Opens a file of a repository, `weights("openai-community/gpt2", "model.safetensors")`, after fetching it if the cache lacks it. If
    /// it is an index, `model.safetensors.index.json`, all of its files are fetched.
    ///
    /// # Errors
    /// [`Error::Hub`] for a repository, revision or file that does not exist, a wrong token, no connection, or an interrupted download;
    /// otherwise as for [`Weights::open`].
    pub fn weights(&self, repo: &str, file: &str) -> Result<Weights, Error> {
        let path = self.fetched(repo, file, &self.revision)?;
        if file.ends_with(".json") {
            // All files are of the index's commit, even if the branch moves in between.
            let revision = commit_of(&path, file).unwrap_or_else(|| self.revision.clone());
            let folder = file.rsplit_once('/').map(|(folder, _)| format!("{folder}/")).unwrap_or_default();
            for shard in shards_of(&path)? {
                self.fetched(repo, &format!("{folder}{shard}"), &revision)?;
            }
        }
        Weights::open(path)
    }

    /// Returns the path of a file in the cache, after fetching it if it is not there.
    fn fetched(&self, repo: &str, file: &str, revision: &str) -> Result<PathBuf, Error> {
        let request = Request { hub: self, repo, file, revision };
        let failed = |what: String| Error::Hub { repo: repo.into(), file: file.into(), what };
        let cache = request.check().map_err(failed)?;
        let named = Repo::with_revision(repo.into(), RepoType::Model, revision.into());
        let cached = cache.repo(named.clone());
        // Python's cache has references for branches and tags alone.
        let by_commit = cached.pointer_path(revision).join(file);
        let known = cached.get(file).or_else(|| by_commit.is_file().then_some(by_commit));
        if let Some(known) = known.filter(|path| path.is_file()) {
            return Ok(known);
        }
        if self.is_offline {
            return Err(failed(format!(
                "is not in the cache {}, and the hub is not asked offline; load it once with a connection and without `HF_HUB_OFFLINE`",
                cache.path().display()
            )));
        }
        request.download(&cache, named).map_err(failed)
    }
}

/// Returns the commit in `../snapshots/COMMIT/FILE`. `None` if the path is another one.
fn commit_of(path: &Path, file: &str) -> Option<String> {
    let folder = path.ancestors().nth(Path::new(file).components().count())?;
    Some(folder.file_name()?.to_str()?.into())
}

/// A request for a file.
struct Request<'r> {
    hub: &'r Hub,
    repo: &'r str,
    file: &'r str,
    revision: &'r str,
}

/// True for a part of a path or an address that cannot lead elsewhere, as `..` would.
fn is_plain(segment: &str) -> bool {
    let is_letter = |letter: char| letter.is_ascii_alphanumeric() || "._-+".contains(letter);
    !segment.is_empty() && !segment.chars().all(|letter| letter == '.') && segment.chars().all(is_letter)
}

impl Request<'_> {
    /// Returns the cache, if all names may be parts of paths and addresses.
    fn check(&self) -> Result<Cache, String> {
        let all_plain = |text: &str| text.len() <= 400 && text.split('/').all(is_plain);
        if !all_plain(self.repo) || self.repo.matches('/').count() > 1 {
            return Err(format!("`{}` is no repository; write it as `openai-community/gpt2`", self.repo));
        }
        if !all_plain(self.file) {
            return Err("is no path in a repository; write it as `model.safetensors`".into());
        }
        if !all_plain(self.revision) {
            return Err(format!("`{}` is no revision; write a branch, a tag or a commit, as `main`", self.revision));
        }
        let (scheme, host) = self.hub.endpoint.split_once("://").unwrap_or_default();
        if !["http", "https"].contains(&scheme) || !host.trim_end_matches('/').split(['/', ':']).all(is_plain) {
            return Err(format!(
                "`{}` is no address of a hub; set `HF_ENDPOINT` as `https://huggingface.co`, or unset it",
                self.hub.endpoint
            ));
        }
        if let Some(token) = &self.hub.token
            && !token.chars().all(|letter| letter.is_ascii_graphic())
        {
            return Err("the token has spaces or other letters than ASCII; set `HF_TOKEN` to one of https://huggingface.co/settings/tokens".into());
        }
        let cache = self.hub.cache.clone();
        cache.map(Cache::new).ok_or_else(|| "there is no home folder for the cache; set `HF_HOME` to a folder".into())
    }

    /// Fetches the file into the cache and returns its path there.
    fn download(&self, cache: &Cache, named: Repo) -> Result<PathBuf, String> {
        let endpoint = self.hub.endpoint.trim_end_matches('/').to_string();
        let builder = ApiBuilder::from_cache(cache.clone()).with_endpoint(endpoint).with_progress(false);
        let api = builder.with_token(self.hub.token.clone()).build().map_err(|error| self.explained(&error))?;
        let url = api.repo(named.clone()).url(self.file);
        let metadata = self.patiently(move |api: Api, _| api.metadata(&url), api.clone())?;
        let (etag, size) = (metadata.etag().to_string(), metadata.size() as u64);
        self.check_answer(&metadata)?;
        let cached = cache.repo(named.clone());
        let blob = cached.blob_path(&etag);
        let part = blob.with_extension("part");
        let length = |path: &Path| std::fs::metadata(path).map(|data| data.len()).ok();
        // A partial download that is not shorter than the file cannot be continued.
        if length(&part).is_some_and(|length| length >= size) {
            std::fs::remove_file(&part).map_err(|error| self.unwritten(&error))?;
        }
        let file = self.file.to_string();
        let fetch = move |repo: ApiRepo, ticks: Ticks| repo.download_with_progress(&file, ticks);
        let path = self.patiently(fetch, api.repo(named))?;
        match length(&path) {
            Some(found) if found == size => Ok(path),
            found => {
                // Without the blob the snapshot's link is broken, so both are removed.
                for damaged in [&path, &blob] {
                    std::fs::remove_file(damaged).ok();
                }
                let found = found.unwrap_or(0);
                Err(format!("has {size} bytes on the hub, and {found} arrived; load it again"))
            }
        }
    }

    /// Checks the parts of an answer that become a path, since the server at this address may be any.
    fn check_answer(&self, metadata: &Metadata) -> Result<(), String> {
        if is_plain(metadata.etag()) && is_plain(metadata.commit_hash()) {
            return Ok(());
        }
        Err(self.no_hub("it names no commit and etag"))
    }

    /// Runs `work` in a thread of its own, so that a silent or broken hub is an error.
    fn patiently<A: Send + 'static, T: Send + 'static>(
        &self,
        work: impl FnOnce(A, Ticks) -> Result<T, ApiError> + Send + 'static,
        with: A,
    ) -> Result<T, String> {
        let (sender, receiver) = channel();
        let (result, results) = channel();
        let run = move || drop(result.send(work(with, Ticks(sender))));
        std::thread::Builder::new().name("gpumem hub".into()).spawn(run).map_err(|error| self.unwritten(&error))?;
        loop {
            match receiver.recv_timeout(self.hub.patience) {
                Ok(()) => {}
                Err(RecvTimeoutError::Timeout) => {
                    let (endpoint, patience) = (&self.hub.endpoint, self.hub.patience.as_secs_f64());
                    return Err(format!(
                        "{endpoint} has sent nothing for {patience} seconds; check the connection and load it again"
                    ));
                }
                // The thread sends no more ticks. Its result follows, unless an answer made hf-hub stop.
                Err(RecvTimeoutError::Disconnected) => break,
            }
        }
        match results.recv_timeout(self.hub.patience) {
            Ok(result) => result.map_err(|error| self.explained(&error)),
            Err(_) => Err(self.no_hub("it ended in the middle")),
        }
    }

    fn unwritten(&self, error: &std::io::Error) -> String {
        let cache = self.hub.cache.as_deref().unwrap_or(Path::new(""));
        format!(
            "cannot be put into the cache {}: {error}; set `HF_HOME` to a folder that can be written",
            cache.display()
        )
    }

    fn no_hub(&self, what: &str) -> String {
        format!("{} does not answer as the hub does: {what}; check `HF_ENDPOINT`", self.hub.endpoint)
    }

    /// Returns the failure in words, and what to do.
    fn explained(&self, error: &ApiError) -> String {
        let Request { hub: Hub { endpoint, .. }, repo, revision, .. } = self;
        match error {
            ApiError::RequestError(error) => match &**error {
                ureq::Error::StatusCode(401) if self.hub.token.is_none() => format!(
                    "there is no public repository `{repo}` (401); check its name at {endpoint}/{repo}, or set `HF_TOKEN` if it is private"
                ),
                ureq::Error::StatusCode(401) => format!(
                    "the token is not accepted (401); set `HF_TOKEN` to one of {endpoint}/settings/tokens, or run `hf auth login`"
                ),
                ureq::Error::StatusCode(403) => format!(
                    "the token may not read `{repo}` (403); ask for access at {endpoint}/{repo}, or set another `HF_TOKEN`"
                ),
                ureq::Error::StatusCode(404) => format!(
                    "there is no such file at revision `{revision}` of `{repo}` (404); check the names at {endpoint}/{repo}/tree/{revision}"
                ),
                ureq::Error::StatusCode(429) => "too many requests (429); load it again in some minutes".into(),
                ureq::Error::StatusCode(code) => format!("{endpoint} answers with status {code}; load it again later"),
                error => format!(
                    "{endpoint} cannot be reached: {error}; check the connection and `HTTPS_PROXY`, or copy the file and use `Weights::open`"
                ),
            },
            ApiError::IoError(error) if is_local(error) => self.unwritten(error),
            ApiError::IoError(error) => {
                format!("the download ended early: {error}; load it again, and it goes on from there")
            }
            ApiError::LockAcquisition(lock) => {
                format!(
                    "another process is fetching it; load it again later, or remove {} if there is none",
                    lock.display()
                )
            }
            error => self.no_hub(&error.to_string()),
        }
    }
}

/// True if the error is about a file, and not about a connection.
fn is_local(error: &std::io::Error) -> bool {
    use std::io::ErrorKind as Kind;
    let kinds = [
        Kind::NotFound,
        Kind::PermissionDenied,
        Kind::AlreadyExists,
        Kind::NotADirectory,
        Kind::StorageFull,
        Kind::QuotaExceeded,
        Kind::ReadOnlyFilesystem,
    ];
    kinds.contains(&error.kind())
}

/// Reports that data has arrived.
struct Ticks(Sender<()>);

impl Progress for Ticks {
    fn init(&mut self, _: usize, _: &str) {
        self.0.send(()).ok();
    }

    fn update(&mut self, _: usize) {
        self.0.send(()).ok();
    }

    fn finish(&mut self) {
        self.0.send(()).ok();
    }
}

#[cfg(test)]
mod tests {
    use super::Hub;
    use std::path::PathBuf;

    fn hub(variables: &[(&str, &str)], home: Option<&str>) -> Hub {
        let variable = |name: &str| Some(variables.iter().find(|variable| variable.0 == name)?.1.to_string());
        Hub::of(&variable, home.map(PathBuf::from))
    }

    #[test]
    fn the_cache_is_where_python_has_it() {
        for (variables, home, expected) in [
            (&[][..], Some("/home/a"), Some("/home/a/.cache/huggingface/hub")),
            (&[("XDG_CACHE_HOME", "/x")], Some("/home/a"), Some("/x/huggingface/hub")),
            (&[("XDG_CACHE_HOME", "/x"), ("HF_HOME", "/h")], Some("/home/a"), Some("/h/hub")),
            (&[("HF_HUB_CACHE", "/c"), ("HF_HOME", "/h")], Some("/home/a"), Some("/c")),
            (&[("HUGGINGFACE_HUB_CACHE", "/c")], None, Some("/c")),
            (&[("HF_HOME", " ")], None, None),
        ] {
            assert_eq!(hub(variables, home).cache, expected.map(PathBuf::from), "{variables:?}");
        }
        assert_eq!(
            hub(&[], None).weights("a/b", "w").unwrap_err().to_string(),
            "a/b/w: there is no home folder for the cache; set `HF_HOME` to a folder"
        );
    }

    #[test]
    fn the_token_is_where_python_has_it() {
        let folder = tempfile::tempdir().unwrap();
        let home = folder.path().to_str().unwrap();
        let file = folder.path().join("other");
        std::fs::write(folder.path().join("token"), "hf_home\n").unwrap();
        std::fs::write(&file, " hf_path ").unwrap();
        let file = file.to_str().unwrap();
        for (variables, expected) in [
            (&[("HF_HOME", home)][..], Some("hf_home")),
            (&[("HF_HOME", home), ("HF_TOKEN_PATH", file)], Some("hf_path")),
            (&[("HF_HOME", home), ("HF_TOKEN", "hf_a")], Some("hf_a")),
            (&[("HF_HOME", home), ("HUGGING_FACE_HUB_TOKEN", "hf_b"), ("HF_TOKEN", "")], Some("hf_b")),
            (&[("HF_HOME", "/none")], None),
        ] {
            assert_eq!(hub(variables, None).token.as_deref(), expected, "{variables:?}");
        }
    }

    #[test]
    fn variables_choose_the_address_and_forbid_it() {
        let plain = hub(&[], None);
        assert_eq!((plain.endpoint.as_str(), plain.revision.as_str()), ("https://huggingface.co", "main"));
        assert!(!plain.is_offline);
        let set = hub(&[("HF_ENDPOINT", "https://a.b"), ("HF_HUB_OFFLINE", "true")], None);
        assert_eq!((set.endpoint.as_str(), set.is_offline), ("https://a.b", true));
        assert!(!hub(&[("HF_HUB_OFFLINE", "0")], None).is_offline);
    }
}
