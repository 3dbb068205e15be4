//! What an editor shows of a network, asked of rust-analyzer itself: hovers and definitions in both forms of the macro.

use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

/// A language server and the file that it has open.
struct Editor {
    server: Child,
    input: ChildStdin,
    messages: Receiver<Value>,
    file: String,
    text: String,
    asked: u64,
    /// All diagnostics of the file that the server has published so far. It may publish them while it still loads the crate.
    published: Vec<Value>,
}

/// The longest that the server may take to load the crate and its dependencies.
const LOADING: Duration = Duration::from_secs(300);

impl Editor {
    /// Opens `src/main.rs` of a crate, with settings of checks. `None` where rust-analyzer is not installed.
    fn open(root: &Path, check: Value) -> Option<Editor> {
        let installed = Command::new("rust-analyzer").arg("--version").output();
        if !installed.is_ok_and(|output| output.status.success()) {
            assert!(std::env::var_os("GPUMEM_REQUIRE_EDITOR").is_none(), "rust-analyzer is not installed");
            eprintln!("rust-analyzer is not installed; nothing was tested");
            return None;
        }
        let target = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("editor");
        let mut server = Command::new("rust-analyzer")
            .current_dir(root)
            .env("CARGO_TARGET_DIR", target)
            .env("CARGO_NET_OFFLINE", "true")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let (input, output) = (server.stdin.take().unwrap(), server.stdout.take().unwrap());
        let (sender, messages) = channel();
        std::thread::spawn(move || {
            let mut output = BufReader::new(output);
            while let Some(message) = received(&mut output) {
                if sender.send(message).is_err() {
                    return;
                }
            }
        });
        let path = root.join("src/main.rs");
        let (text, file) = (std::fs::read_to_string(&path).unwrap(), format!("file://{}", path.display()));
        let mut editor = Editor { server, input, messages, file, text, asked: 0, published: Vec::new() };
        let mut options = json!({ "cachePriming": { "enable": false }, "procMacro": { "enable": true } });
        options.as_object_mut().unwrap().extend(check.as_object().unwrap().clone());
        editor.ask(
            "initialize",
            json!({
                "processId": std::process::id(),
                "rootUri": format!("file://{}", root.display()),
                "capabilities": {
                    "experimental": { "serverStatusNotification": true },
                    "textDocument": {
                        "hover": { "contentFormat": ["markdown"] },
                        "codeAction": { "codeActionLiteralSupport": { "codeActionKind": { "valueSet": ["quickfix"] } } },
                    },
                },
                "initializationOptions": options,
            }),
        );
        editor.tell("initialized", json!({}));
        let document = json!({ "uri": editor.file, "languageId": "rust", "version": 1, "text": editor.text });
        editor.tell("textDocument/didOpen", json!({ "textDocument": document }));
        editor.wait_until_loaded();
        Some(editor)
    }

    fn send(&mut self, message: &Value) {
        let text = message.to_string();
        write!(self.input, "Content-Length: {}\r\n\r\n{text}", text.len()).unwrap();
        self.input.flush().unwrap();
    }

    fn tell(&mut self, method: &str, parameters: Value) {
        self.send(&json!({ "jsonrpc": "2.0", "method": method, "params": parameters }));
    }

    /// The next message that is no request of the server's; those are answered with nothing.
    fn next(&mut self, until: Instant) -> Value {
        loop {
            let left = until.saturating_duration_since(Instant::now());
            let message = self.messages.recv_timeout(left).expect("an answer of the language server");
            if message["method"] == "textDocument/publishDiagnostics" && message["params"]["uri"] == self.file {
                self.published.extend(message["params"]["diagnostics"].as_array().into_iter().flatten().cloned());
            }
            if message.get("method").is_none() || message.get("id").is_none() {
                return message;
            }
            self.send(&json!({ "jsonrpc": "2.0", "id": message["id"], "result": null }));
        }
    }

    fn ask(&mut self, method: &str, parameters: Value) -> Value {
        self.asked += 1;
        let id = self.asked;
        self.send(&json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": parameters }));
        let until = Instant::now() + LOADING;
        loop {
            let message = self.next(until);
            if message["id"] == id {
                return message;
            }
        }
    }

    fn wait_until_loaded(&mut self) {
        let until = Instant::now() + LOADING;
        loop {
            let message = self.next(until);
            if message["method"] == "experimental/serverStatus" && message["params"]["quiescent"] == true {
                // It warns where the standard library's own dependencies are not on this machine.
                return assert_ne!(message["params"]["health"], "error", "{message}");
            }
        }
    }

    /// Asks about the name that follows `before` in the file, once the server has no newer version of the crate to read.
    fn about(&mut self, method: &str, before: &str) -> Value {
        let at = self.text.find(before).unwrap_or_else(|| panic!("`{before}` is not in the file")) + before.len();
        let (line, column) =
            (self.text[..at].matches('\n').count(), at - self.text[..at].rfind('\n').map_or(0, |end| end + 1));
        let parameters =
            json!({ "textDocument": { "uri": self.file }, "position": { "line": line, "character": column } });
        loop {
            let answer = self.ask(method, parameters.clone());
            // "content modified": it was interrupted.
            if answer["error"]["code"] != -32801 {
                return answer["result"].clone();
            }
        }
    }

    /// Returns the hover of the name after `before` if it lacks `expected`.
    fn wrong_hover(&mut self, before: &str, expected: &str) -> Option<String> {
        let hover = self.about("textDocument/hover", before);
        let text = hover["contents"]["value"].as_str().unwrap_or_default();
        (!text.contains(expected)).then(|| format!("after `{before}`, without `{expected}`: {hover}"))
    }

    /// Returns the diagnostic of `gpumem` with this code, once the check of the file has ended.
    fn diagnostic(&mut self, code: &str) -> Value {
        let until = Instant::now() + LOADING;
        loop {
            if let Some(found) = self.published.iter().find(|it| it["source"] == "gpumem" && it["code"] == code) {
                return found.clone();
            }
            self.next(until);
        }
    }

    /// The file and the line, from 1, where a name is defined.
    fn definition(&mut self, before: &str) -> (String, u64) {
        let found = self.about("textDocument/definition", before);
        let first = found.get(0).unwrap_or_else(|| panic!("after `{before}`: {found}"));
        let (file, range) = match first.get("targetUri") {
            Some(file) => (file, &first["targetSelectionRange"]),
            None => (&first["uri"], &first["range"]),
        };
        (file.as_str().unwrap_or_default().to_string(), range["start"]["line"].as_u64().unwrap_or_default() + 1)
    }
}

impl Drop for Editor {
    fn drop(&mut self) {
        // It is of no use any more, and what it was doing neither.
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}

/// One message: headers, an empty line, and as many bytes as they say.
fn received(output: &mut impl BufRead) -> Option<Value> {
    let mut length = 0;
    loop {
        let mut line = String::new();
        if output.read_line(&mut line).ok()? == 0 {
            return None;
        }
        match line.trim().strip_prefix("Content-Length: ") {
            Some(bytes) => length = bytes.parse().ok()?,
            None if line.trim().is_empty() => break,
            None => {}
        }
    }
    let mut bytes = vec![0; length];
    output.read_exact(&mut bytes).ok()?;
    serde_json::from_slice(&bytes).ok()
}

/// Returns the folder of the crate, with the versions of this repository.
fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let root = here.join("tests/fixtures/editor").canonicalize().unwrap();
    std::fs::copy(here.join("../Cargo.lock"), root.join("Cargo.lock")).unwrap();
    root
}

/// Slow: the crate and its dependencies are built.
#[test]
#[ignore = "a sweep: run by .ci/run"]
fn a_network_that_does_not_fit_is_an_error_at_its_batch() {
    let command = env!("CARGO_BIN_EXE_cargo-gpumem");
    let check =
        [command, "gpumem", "fit", "--quiet", "--cards", "8GiB", "--batch", "1000000", "--message-format", "json"];
    let Some(mut editor) = Editor::open(&root(), json!({ "check": { "overrideCommand": check } })) else { return };
    let text = editor.text.clone();
    let place = |part: &str| {
        let at = text.find(part).unwrap();
        let (line, column) = (text[..at].matches('\n').count(), at - text[..at].rfind('\n').map_or(0, |end| end + 1));
        json!({ "start": { "line": line, "character": column }, "end": { "line": line, "character": column + part.len() } })
    };
    let [error, hint] = ["too_large", "fits"].map(|code| editor.diagnostic(code));
    assert_eq!((&error["severity"], &error["range"]), (&1.into(), &place("batch: 4")), "{error}");
    assert!(error["message"].as_str().unwrap().starts_with("`Written` at batch 1000000 needs "), "{error}");
    assert_eq!((&hint["severity"], &hint["range"]), (&4.into(), &place("batch: 1")), "{hint}");
    // The largest batch is a correction that the editor can make.
    let parameters = json!({
        "textDocument": { "uri": editor.file },
        "range": error["range"],
        "context": { "diagnostics": [hint], "only": ["quickfix"] },
    });
    let actions = editor.ask("textDocument/codeAction", parameters);
    let is_fix =
        |action: &&Value| action["title"].as_str().is_some_and(|title| title.contains("the largest batch on "));
    let fix = actions["result"].as_array().and_then(|all| all.iter().find(is_fix));
    let fix = fix.unwrap_or_else(|| panic!("{actions}"));
    let edits = fix["edit"]["documentChanges"][0]["edits"].as_array();
    let edits = edits.or_else(|| fix["edit"]["changes"][&editor.file].as_array());
    let edit = &edits.unwrap_or_else(|| panic!("{fix}"))[0];
    let mut number = place("batch: 4");
    number["start"]["character"] = (number["end"]["character"].as_u64().unwrap() - 1).into();
    assert_eq!(edit["range"], number, "{fix}");
    assert!(edit["newText"].as_str().is_some_and(|batch| batch.parse::<u64>().unwrap() > 4), "{fix}");
}

/// Slow: the server reads the standard library and builds the macros.
#[test]
#[ignore = "a sweep: run by .ci/run"]
fn names_lead_to_their_pages() {
    let Some(mut editor) = Editor::open(&root(), json!({ "checkOnSave": false })) else { return };
    let pages = [
        // What `network!` has.
        ("            ", "torch.nn.Conv2d"),
        ("Conv2d(8, 3, ", "torch.nn.Conv2d"),
        ("Conv2d(8, 3, padding = 1), ", "torch.nn.ReLU"),
        ("Relu, ", "marks the value"),
        ("Relu, tap(", "The value that `tap(early)` marks"),
        ("tap(early), ", "parameters of its own"),
        ("repeat(2, ", "Half as high, half as wide."),
        ("repeat(2, halve(8)), ", "torch.nn.MaxPool2d"),
        ("Add([], [", "in place of the value that arrives"),
        ("Add([], [from(", "The value that `tap(early)` marks"),
        ("fn forward(image: ", "C channels"),
        ("-> ", "class scores"),
        ("        loss: ", "torch.nn.CrossEntropyLoss"),
        ("        optimizer: ", "tochastic gradient descent"),
        ("    const TRAIN: Train = Train {\n        ", "Samples"),
        ("        cards: [", "RTX 3060"),
        // What the attribute has.
        ("[Embedding(100, 32), ", "parameters of its own"),
        ("Sequence<16, 32> {\n        [", "torch.nn.Embedding"),
        ("twice([LayerNorm, ", "torch.nn.Linear"),
        ("twice([LayerNorm, Linear(32), ", "torch.nn.GELU"),
        ("words: ", "indices"),
    ];
    let wrong: Vec<String> =
        pages.into_iter().filter_map(|(before, expected)| editor.wrong_hover(before, expected)).collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    let (file, _) = editor.definition("            ");
    assert!(file.ends_with("gpumem-core/src/layers/convolution/conv2d.rs"), "{file}");
    let line = |text: &str| 1 + editor.text[..editor.text.find(text).unwrap()].matches('\n').count() as u64;
    let (block, tap) = (line("fn halve("), line("tap(early)"));
    assert_eq!(editor.definition("repeat(2, "), (editor.file.clone(), block));
    assert_eq!(editor.definition("[from("), (editor.file.clone(), tap));
    // What is half typed: the text is another one from here on.
    editor.text = editor.text.replace("MaxPool2d(2),", "MaxP,");
    let change = json!([{ "text": editor.text }]);
    editor.tell(
        "textDocument/didChange",
        json!({ "textDocument": { "uri": editor.file, "version": 2 }, "contentChanges": change }),
    );
    let found = editor.about("textDocument/completion", "repeat(2, halve(8)), MaxP");
    let items = found["items"].as_array().unwrap_or_else(|| panic!("no completions: {found}"));
    let labels: Vec<&str> = items.iter().filter_map(|item| item["label"].as_str()).collect();
    assert!(["MaxPool2d", "Relu"].iter().all(|name| labels.contains(name)), "{labels:?}");
}
