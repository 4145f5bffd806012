module github.com/redlatch/redlatch/integration

go 1.26.0

require (
	github.com/redis/rueidis v1.0.79
	github.com/redlatch/redlatch v0.0.0-00010101000000-000000000000
	go.uber.org/goleak v1.3.0
)

require golang.org/x/sys v0.47.0 // indirect

replace github.com/redlatch/redlatch => ../
