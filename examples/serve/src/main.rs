//! Serves a network at 127.0.0.1:3000.
//!
//! ```text
//! cargo run --release -p gpumem-serve-example
//! curl -H 'content-type: application/json' -d '[[0.5, -0.2], [-1, 1]]' http://127.0.0.1:3000/predict
//! ```

use gpumem_serve_example::{app, trained};
use std::error::Error;
use tokio::net::TcpListener;
use tokio::runtime::Runtime;

fn main() -> Result<(), Box<dyn Error>> {
    let model = trained()?;
    Runtime::new()?.block_on(async {
        let listener = TcpListener::bind("127.0.0.1:3000").await?;
        println!("listening at http://{}", listener.local_addr()?);
        axum::serve(listener, app(model)).await?;
        Ok(())
    })
}
