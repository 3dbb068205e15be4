//! A network behind HTTP: `POST /predict` takes up to a batch of points, `[[0.5, -0.2]]`, and answers with their quadrants,
//! `{"quadrants":[4]}`.

use axum::extract::State;
use axum::extract::rejection::JsonRejection;
use axum::http::StatusCode;
use axum::routing::post;
use axum::{Json, Router};
use gpumem::prelude::*;
use gpumem::{Error, Serving};
use serde_json::{Value, json};
use std::sync::{Arc, Mutex, PoisonError};
use tokio::task::spawn_blocking;

network! {
    /// In which quadrant a point of the plane lies: trained with 32 points a step, asked about 4 at a time.
    pub struct Quadrant;

    const TRAIN: Train = Train { batch: 32, optimizer: Adam { lr: 0.02 }, loss: CrossEntropy, seed: 5 };
    const INFER: Infer = Infer { batch: 4 };

    fn forward(point: Features<2>) -> Logits<4> {
        [Linear(16), Relu, Linear(4)]
    }
}

/// Trains the network, and returns its forward pass alone. A server for real would read weights from a file.
///
/// # Errors
/// A failure of the device.
pub fn trained() -> Result<Model, Error> {
    let device = gpumem::default_device()?;
    let mut net = Quadrant::on(&device)?;
    for step in 0..300 {
        // Points that look random, none of them near an axis.
        let at = |index: usize| ((step * 64 + index) * 7919 % 1000) as f32 / 500.0 - 1.0;
        let points = Tensor::from_fn(|index| at(index) + 0.1 * at(index).signum());
        let labels = points.samples().map(|point| [quadrant(point)]).collect::<Vec<_>>();
        net.train_step(&points, &Tensor::from_samples(labels)?.0)?;
    }
    let mut serving = Quadrant::infer_on(&device)?;
    serving.copy_from(&mut net)?;
    Ok(serving)
}

/// From 0, against the clock.
fn quadrant(point: &[f32]) -> u32 {
    match (point[0] > 0.0, point[1] > 0.0) {
        (true, true) => 0,
        (false, true) => 1,
        (false, false) => 2,
        (true, false) => 3,
    }
}

// docs/guide/save-resume-serve.md shows these lines.
// --- core ---
/// The forward pass alone, at the batch of `INFER`.
pub type Model = Net<Serving<Quadrant>, AnyDevice>;

/// The service.
pub fn app(model: Model) -> Router {
    Router::new().route("/predict", post(predict)).with_state(Arc::new(Mutex::new(model)))
}

type Answer = Result<Json<Value>, (StatusCode, String)>;

async fn predict(State(model): State<Arc<Mutex<Model>>>, body: Result<Json<Vec<Vec<f32>>>, JsonRejection>) -> Answer {
    let Json(points) = body.map_err(|rejection| (StatusCode::BAD_REQUEST, rejection.body_text()))?;
    // A forward pass computes: on a thread for that, so that the server goes on listening.
    let answer = spawn_blocking(move || {
        let (points, count) = Tensor::from_samples(points)?;
        // One pass at a time. A panic of another leaves no half of anything: every pass writes all that it reads.
        let logits = model.lock().unwrap_or_else(PoisonError::into_inner).forward(&points)?;
        let quadrants = logits.argmax().into_iter().take(count).map(|quadrant| quadrant + 1);
        Ok(Json(json!({ "quadrants": quadrants.collect::<Vec<_>>() })))
    });
    let answer = answer.await.map_err(|panic| (StatusCode::INTERNAL_SERVER_ERROR, panic.to_string()))?;
    answer.map_err(|error: Error| match error {
        // What was sent is wrong, and the text says how.
        Error::Length { .. } | Error::Samples { .. } | Error::Index { .. } => {
            (StatusCode::BAD_REQUEST, error.to_string())
        }
        _ => (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()),
    })
}
// --- end of core ---
