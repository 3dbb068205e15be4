//! Files of the hub, from a server on this machine that answers as the hub does, or worse.

mod common;

use common::{Tiny, cpu, golden, state};
use gpumem_weights::{Error, Hub, NetWeights, Weights};
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

const COMMIT: &str = "0123456789abcdef0123456789abcdef01234567";

/// The answer of the server to a request for a path.
#[derive(Clone)]
enum Answer {
    /// A file, as the hub has it.
    File(Vec<u8>),
    /// A large file: the hub sends the client to another address.
    Elsewhere(Vec<u8>),
    /// A file whose body ends after so many bytes, the first time.
    Cut(Vec<u8>, usize),
    /// A file of which the body is another one.
    Other(Vec<u8>, Vec<u8>),
    Status(u16),
    /// This text.
    Text(String),
    Silence,
}

/// One request: path, `Range`, `Authorization`.
#[derive(Clone, Debug, PartialEq)]
struct Asked {
    path: String,
    range: String,
    token: String,
}

struct Server {
    address: String,
    asked: Arc<Mutex<Vec<Asked>>>,
}

impl Server {
    fn new(answers: impl IntoIterator<Item = (String, Answer)>) -> Server {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap());
        let asked = Arc::new(Mutex::new(Vec::new()));
        let (mut answers, log, own) = (answers.into_iter().collect::<BTreeMap<_, _>>(), asked.clone(), address.clone());
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let mut stream = stream.unwrap();
                let Some(request) = read(&stream) else { continue };
                log.lock().unwrap().push(request.clone());
                match answers.get(request.path.trim_start_matches("/elsewhere")).cloned() {
                    Some(Answer::Silence) => std::mem::forget(stream),
                    Some(answer) => {
                        if reply(&mut stream, &own, &request, &answer)
                            && let Answer::Cut(bytes, _) = answer
                        {
                            answers.insert(request.path, Answer::File(bytes));
                        }
                    }
                    None => drop(reply(&mut stream, &own, &request, &Answer::Status(404))),
                }
            }
        });
        Server { address, asked }
    }

    fn hub(&self, cache: &Path) -> Hub {
        Hub::new().endpoint(&self.address).cache(cache).token(None).offline(false).timeout(Duration::from_secs(20))
    }

    fn asked(&self) -> Vec<Asked> {
        self.asked.lock().unwrap().clone()
    }
}

fn read(stream: &TcpStream) -> Option<Asked> {
    let mut lines = BufReader::new(stream).lines().map_while(Result::ok);
    let path = lines.next()?.split(' ').nth(1)?.to_string();
    let headers: Vec<String> = lines.take_while(|line| !line.is_empty()).collect();
    let header = |name: &str| {
        let found =
            headers.iter().find_map(|line| line.split_once(": ").filter(|(key, _)| key.eq_ignore_ascii_case(name)));
        found.map(|(_, value)| value.to_string()).unwrap_or_default()
    };
    Some(Asked { path, range: header("range"), token: header("authorization") })
}

/// Answers a request. True if it was for a body.
fn reply(stream: &mut TcpStream, own: &str, request: &Asked, answer: &Answer) -> bool {
    let first: usize = request.range.trim_start_matches("bytes=").split('-').next().unwrap().parse().unwrap();
    let is_body = request.range.ends_with('-');
    let is_elsewhere = request.path.starts_with("/elsewhere");
    let mut send = |head: String, body: &[u8]| {
        // The client may be gone.
        stream.write_all(format!("HTTP/1.1 {head}\r\nConnection: close\r\n\r\n").as_bytes()).ok();
        stream.write_all(body).ok();
    };
    let named = format!("ETag: \"{}\"\r\nX-Repo-Commit: {COMMIT}", etag(&request.path));
    let mut file = |bytes: &[u8], body: &[u8]| {
        let (length, last) = (body.len(), if is_body { bytes.len() - 1 } else { first });
        let range = format!("Content-Length: {length}\r\nContent-Range: bytes {first}-{last}/{}", bytes.len());
        send(format!("206 Partial Content\r\n{range}\r\n{named}"), body);
    };
    match answer {
        Answer::Elsewhere(_) if !is_elsewhere => send(
            format!(
                "302 Found\r\nLocation: {own}/elsewhere{}\r\nX-Linked-ETag: \"{}\"\r\n{named}\r\nContent-Length: 0",
                request.path,
                etag(&request.path)
            ),
            &[],
        ),
        Answer::File(bytes) | Answer::Elsewhere(bytes) => {
            file(bytes, if is_body { &bytes[first..] } else { &bytes[first..=first] });
        }
        Answer::Cut(bytes, length) if is_body => {
            let range = format!(
                "Content-Length: {}\r\nContent-Range: bytes 0-{}/{}",
                bytes.len(),
                bytes.len() - 1,
                bytes.len()
            );
            send(format!("206 Partial Content\r\n{range}\r\n{named}"), &bytes[..*length]);
        }
        Answer::Other(bytes, other) => file(bytes, if is_body { other } else { &bytes[..1] }),
        Answer::Cut(bytes, _) => file(bytes, &bytes[..1]),
        Answer::Status(code) => send(format!("{code} Status\r\nContent-Length: 0"), &[]),
        Answer::Text(text) => send(text.clone(), &[]),
        Answer::Silence => {}
    }
    is_body
}

fn etag(path: &str) -> String {
    let name: String =
        path.trim_start_matches("/elsewhere").chars().filter(|letter| letter.is_ascii_alphanumeric()).collect();
    format!("e{name}")
}

fn at(revision: &str, file: &str) -> String {
    format!("/owner/name/resolve/{revision}/{file}")
}

/// A file for `Tiny`.
fn tiny(folder: &Path) -> Vec<u8> {
    let path = folder.join("made.safetensors");
    Tiny::on(&cpu()).unwrap().save_weights(&path).unwrap();
    std::fs::read(path).unwrap()
}

#[test]
fn a_file_is_fetched_once() {
    let folder = tempfile::tempdir().unwrap();
    let (bytes, cache) = (tiny(folder.path()), folder.path().join("cache"));
    for answer in [Answer::File(bytes.clone()), Answer::Elsewhere(bytes.clone())] {
        std::fs::remove_dir_all(&cache).ok();
        let server = Server::new([(at("main", "model.safetensors"), answer)]);
        let hub = server.hub(&cache).token(Some("hf_secret"));
        assert!(!format!("{hub:?}").contains("hf_secret"));
        let mut net = Tiny::on(&cpu()).unwrap();
        net.set("fc.bias", &[9.0; 5]).unwrap();
        hub.weights("owner/name", "model.safetensors").unwrap().load_into(&mut net).unwrap();
        let mut made = Tiny::on(&cpu()).unwrap();
        assert!(state(&mut net) == state(&mut made));
        // The token is for the hub.
        let asked = server.asked();
        assert!(asked.iter().all(|asked| asked.token == "Bearer hf_secret"), "{asked:?}");
        // Python's libraries look for it there.
        let path = cache.join(format!("models--owner--name/snapshots/{COMMIT}/model.safetensors"));
        assert_eq!(std::fs::read(&path).unwrap(), bytes);
        assert_eq!(std::fs::read_to_string(cache.join("models--owner--name/refs/main")).unwrap(), COMMIT);
        // From there without a question, by branch and by commit, offline and with nobody there.
        let nobody = Server::new([]).hub(&cache).endpoint("http://127.0.0.1:9");
        for hub in [hub.clone(), hub.clone().offline(true), nobody.clone(), nobody.revision(COMMIT)] {
            assert_eq!(hub.weights("owner/name", "model.safetensors").unwrap().tensors().count(), 8);
        }
        assert_eq!(server.asked(), asked);
    }
}

#[test]
fn all_files_of_an_index_are_fetched_at_its_commit() {
    let folder = tempfile::tempdir().unwrap();
    let name = |number: usize| format!("model-0000{number}-of-00004.safetensors");
    let file = |name: &str| Answer::Elsewhere(std::fs::read(golden("gpt2").join(name)).unwrap());
    let index = "model.safetensors.index.json";
    let shards: Vec<_> =
        (1..=4).map(|number| (at(COMMIT, &format!("sub/{}", name(number))), file(&name(number)))).collect();
    let server = Server::new(shards.into_iter().chain([(at("v1.0", &format!("sub/{index}")), file(index))]));
    let hub = server.hub(folder.path()).revision("v1.0");
    let weights = hub.weights("owner/name", &format!("sub/{index}")).unwrap();
    let expected = Weights::open(golden("gpt2").join(index)).unwrap();
    assert!(weights.tensors().eq(expected.tensors()));
    assert!(hub.offline(true).weights("owner/name", &format!("sub/{index}")).is_ok());
}

/// A download that ended early goes on from there.
#[test]
fn a_download_goes_on() {
    let folder = tempfile::tempdir().unwrap();
    let (bytes, cache) = (tiny(folder.path()), folder.path().join("cache"));
    let server = Server::new([(at("main", "w.safetensors"), Answer::Cut(bytes.clone(), 300))]);
    let hub = server.hub(&cache);
    let error = hub.weights("owner/name", "w.safetensors").unwrap_err().to_string();
    assert!(error.starts_with("owner/name/w.safetensors: the download ended early: "), "{error}");
    assert!(error.ends_with("; load it again, and it goes on from there"), "{error}");
    let Err(offline) = hub.clone().offline(true).weights("owner/name", "w.safetensors") else { panic!("half a file") };
    assert!(offline.to_string().contains("is not in the cache"));
    hub.weights("owner/name", "w.safetensors").unwrap().load_into(&mut Tiny::on(&cpu()).unwrap()).unwrap();
    assert_eq!(server.asked().last().unwrap().range, "bytes=300-");
    // A part as long as the file is none.
    std::fs::remove_dir_all(&cache).unwrap();
    let blobs = cache.join("models--owner--name/blobs");
    std::fs::create_dir_all(&blobs).unwrap();
    let part = blobs.join(format!("{}.part", etag(&at("main", "w.safetensors"))));
    std::fs::write(&part, vec![0; bytes.len()]).unwrap();
    hub.weights("owner/name", "w.safetensors").unwrap().load_into(&mut Tiny::on(&cpu()).unwrap()).unwrap();
    assert!(!part.exists());
}

#[test]
fn what_the_hub_does_not_give() {
    let folder = tempfile::tempdir().unwrap();
    let (bytes, cache) = (tiny(folder.path()), folder.path().join("cache"));
    let named = "ETag: \"e\"\r\nX-Repo-Commit: c\r\nContent-Length: 0";
    let answers = [
        ("401", Answer::Status(401)),
        ("403", Answer::Status(403)),
        ("429", Answer::Status(429)),
        ("503", Answer::Status(503)),
        ("silence", Answer::Silence),
        ("plain", Answer::Text("200 OK\r\nContent-Length: 0".into())),
        ("lost", Answer::Text(format!("302 Found\r\n{named}"))),
        (
            "outside",
            Answer::Text("206 Partial Content\r\nContent-Range: bytes 0-0/9\r\nETag: \"../../x\"\r\nX-Repo-Commit: c\r\nContent-Length: 0".into()),
        ),
        ("size", Answer::Text(format!("206 Partial Content\r\nContent-Range: bytes 0-0/x\r\n{named}"))),
        ("long", Answer::Other(bytes.clone(), [&bytes[..], b"more"].concat())),
        ("short", Answer::Other(bytes.clone(), bytes[..100].to_vec())),
    ];
    let server = Server::new(answers.map(|(name, answer)| (at("main", name), answer)));
    let (hub, host) = (server.hub(&cache), server.address.as_str());
    let asks = |hub: &Hub, file: &str, expected: &str| {
        let error = hub.weights("owner/name", file).unwrap_err();
        assert!(matches!(&error, Error::Hub { repo, file: named, .. } if repo == "owner/name" && named == file));
        assert_eq!(error.to_string(), format!("owner/name/{file}: {expected}"));
    };
    asks(
        &hub,
        "401",
        &format!(
            "there is no public repository `owner/name` (401); check its name at {host}/owner/name, or set `HF_TOKEN` if it is private"
        ),
    );
    let known = hub.clone().token(Some("hf_old"));
    asks(
        &known,
        "401",
        &format!(
            "the token is not accepted (401); set `HF_TOKEN` to one of {host}/settings/tokens, or run `hf auth login`"
        ),
    );
    asks(
        &known,
        "403",
        &format!(
            "the token may not read `owner/name` (403); ask for access at {host}/owner/name, or set another `HF_TOKEN`"
        ),
    );
    asks(
        &hub,
        "none.safetensors",
        &format!(
            "there is no such file at revision `main` of `owner/name` (404); check the names at {host}/owner/name/tree/main"
        ),
    );
    asks(&hub, "429", "too many requests (429); load it again in some minutes");
    asks(&hub, "503", &format!("{host} answers with status 503; load it again later"));
    let hasty = hub.clone().timeout(Duration::from_millis(500));
    asks(
        &hasty,
        "silence",
        &format!("{host} has sent nothing for 0.5 seconds; check the connection and load it again"),
    );
    let other = |what: &str| format!("{host} does not answer as the hub does: {what}; check `HF_ENDPOINT`");
    asks(&hub, "plain", &other("Header etag is missing"));
    asks(&hub, "lost", &other("it ended in the middle"));
    asks(&hub, "outside", &other("it names no commit and etag"));
    asks(&hub, "size", &other("Cannot parse int"));
    let length = bytes.len();
    asks(&hub, "long", &format!("has {length} bytes on the hub, and {} arrived; load it again", length + 4));
    asks(&hub, "short", &format!("has {length} bytes on the hub, and 100 arrived; load it again"));
    // Nothing of these is taken for the file.
    for file in ["long", "short"] {
        let offline = hub.clone().offline(true);
        let place = cache.display();
        asks(
            &offline,
            file,
            &format!(
                "is not in the cache {place}, and the hub is not asked offline; load it once with a connection and without `HF_HUB_OFFLINE`"
            ),
        );
    }
    let nobody = hub.clone().endpoint("http://127.0.0.1:9");
    let error = nobody.weights("owner/name", "w").unwrap_err().to_string();
    assert!(error.starts_with("owner/name/w: http://127.0.0.1:9 cannot be reached: "), "{error}");
    assert!(
        error.ends_with("; check the connection and `HTTPS_PROXY`, or copy the file and use `Weights::open`"),
        "{error}"
    );
}

#[test]
fn names_that_lead_elsewhere() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::new([]);
    let hub = server.hub(folder.path());
    let asks = |hub: &Hub, repo: &str, file: &str, expected: &str| {
        assert_eq!(hub.weights(repo, file).unwrap_err().to_string(), format!("{repo}/{file}: {expected}"));
    };
    for repo in ["", "..", "../x", "a/b/c", "a//b", "a b", "a?b/c", "https://x/y"] {
        asks(&hub, repo, "w", &format!("`{repo}` is no repository; write it as `openai-community/gpt2`"));
    }
    for file in ["", "../w", "a/../w", "/w", "a\\w", "w#", "w "] {
        asks(&hub, "a/b", file, "is no path in a repository; write it as `model.safetensors`");
    }
    for revision in ["", "..", "a/../b", "a b"] {
        let hub = hub.clone().revision(revision);
        asks(&hub, "a/b", "w", &format!("`{revision}` is no revision; write a branch, a tag or a commit, as `main`"));
    }
    for endpoint in ["", "huggingface.co", "ftp://huggingface.co", "http://", "http://a b"] {
        let hub = hub.clone().endpoint(endpoint);
        let expected =
            format!("`{endpoint}` is no address of a hub; set `HF_ENDPOINT` as `https://huggingface.co`, or unset it");
        asks(&hub, "a/b", "w", &expected);
    }
    let expected = "the token has spaces or other letters than ASCII; set `HF_TOKEN` to one of https://huggingface.co/settings/tokens";
    asks(&hub.clone().token(Some("a\nb")), "a/b", "w", expected);
    assert_eq!(server.asked(), []);
}

/// A cache that cannot be written, and one in use.
#[test]
fn caches_that_take_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let bytes = tiny(folder.path());
    let server = Server::new([(at("main", "w"), Answer::File(bytes))]);
    let file = folder.path().join("file");
    std::fs::write(&file, "").unwrap();
    let error = server.hub(&file).weights("owner/name", "w").unwrap_err().to_string();
    let start = format!("owner/name/w: cannot be put into the cache {}: ", file.display());
    assert!(error.starts_with(&start), "{error}");
    assert!(error.ends_with("; set `HF_HOME` to a folder that can be written"), "{error}");
    let cache = folder.path().join("cache");
    let blobs = cache.join("models--owner--name/blobs");
    std::fs::create_dir_all(&blobs).unwrap();
    let lock = blobs.join(format!("{}.lock", etag(&at("main", "w"))));
    let held = std::fs::File::create(&lock).unwrap();
    held.lock().unwrap();
    let error = server.hub(&cache).weights("owner/name", "w").unwrap_err().to_string();
    assert_eq!(
        error,
        format!(
            "owner/name/w: another process is fetching it; load it again later, or remove {} if there is none",
            lock.display()
        )
    );
}
