"""The elementwise pattern: any graph of pointwise operations over inputs that broadcast to the outputs' shape."""
