//! The service as others see it: HTTP over TCP.

use gpumem_serve_example::{app, trained};
use serde_json::{Value, json};
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::runtime::Runtime;

/// Status and body of the answer to a request.
fn ask(address: SocketAddr, body: &str) -> (u16, String) {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    let length = body.len();
    let head = format!(
        "POST /predict HTTP/1.1\r\nHost: {address}\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n\
         Connection: close\r\n\r\n"
    );
    stream.write_all((head + body).as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    let status = head.strip_prefix("HTTP/1.1 ").unwrap()[..3].parse().unwrap();
    (status, body.to_string())
}

fn quadrants(address: SocketAddr, body: &str) -> Value {
    let (status, text) = ask(address, body);
    assert_eq!(status, 200, "{text}");
    serde_json::from_str::<Value>(&text).unwrap()["quadrants"].take()
}

#[test]
fn it_answers_refuses_and_answers_many_at_once() {
    let model = trained().unwrap();
    let runtime = Runtime::new().unwrap();
    // A port that is free.
    let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
    let address = listener.local_addr().unwrap();
    runtime.spawn(async move { axum::serve(listener, app(model)).await });

    assert_eq!(quadrants(address, "[[0.7, 0.6]]"), json!([1]));
    assert_eq!(quadrants(address, "[[0.7, 0.6], [-0.5, 0.5], [-0.6, -0.4], [0.5, -0.7]]"), json!([1, 2, 3, 4]));
    assert_eq!(quadrants(address, "[]"), json!([]));

    // Errors of the network are the answer's text.
    let refused = |body: &str| {
        let (status, text) = ask(address, body);
        assert_eq!(status, 400, "{text}");
        text
    };
    assert_eq!(
        refused("[[0.7, 0.6], [1.0, 2.0, 3.0]]"),
        "sample 1 of a batch of shape [4, 2] has 2 elements, but 3 were given"
    );
    let five = refused("[[1, 1], [1, 1], [1, 1], [1, 1], [1, 1]]");
    assert_eq!(
        five,
        "the batch has room for 4 samples, but 5 were given; hand them over in several batches, as `samples.chunks(4)` gives them"
    );
    assert!(refused("[[0.7,").contains("Failed to parse the request body as JSON"));
    assert!(refused("[[\"north\"]]").contains("invalid type: string"));

    std::thread::scope(|scope| {
        for thread in 0..8 {
            scope.spawn(move || {
                for turn in 0..10 {
                    let (x, y, quadrant) =
                        [(0.6, 0.7, 1), (-0.6, 0.7, 2), (-0.6, -0.7, 3), (0.6, -0.7, 4)][(thread + turn) % 4];
                    assert_eq!(quadrants(address, &format!("[[{x}, {y}]]")), json!([quadrant]));
                }
            });
        }
    });
}

/// The page shows the core as it is here.
#[test]
fn the_page_shows_the_code() {
    let code = include_str!("../src/lib.rs");
    let page = include_str!("../../../docs/guide/save-resume-serve.md");
    let core = code.split_once("// --- core ---\n").unwrap().1.split_once("// --- end of core ---").unwrap().0;
    assert!(page.contains(core), "docs/guide/save-resume-serve.md does not show\n{core}");
}
